// SPDX-License-Identifier: Apache-2.0
// Lookup-free and binary spherical quantization as the papers write them, from every token's distance to every code.
#include <cmath>

#include "tests/cases/losses/quantizer_cases.h"
#include "weft/engine/ops/ops.h"
#include "weft/losses/quantizers/binary_spherical.h"

namespace weft {
namespace {

using Inputs = LossCase::Inputs;

// The codes {-scale, scale}^bits as a matrix (2^bits, bits).
Var cube(int64_t bits, double scale) {
  std::vector<double> values;
  for (int64_t code = 0; code < int64_t{1} << bits; ++code)
    for (int64_t bit = bits - 1; bit >= 0; --bit) values.push_back(code >> bit & 1 ? scale : -scale);
  return replicated_constant(Tensor::from({int64_t{1} << bits, bits}, values, DType::f64));
}

Var entropy_terms(const Var& x, const LookupFreeOptions& o) {
  const int64_t each = o.bits / o.groups;
  Var of_tokens = Tensor::zeros({}, DType::f64), of_mean = of_tokens;
  for (int64_t begin = 0; begin < o.bits; begin += each) {
    const Var distances = pairwise_squared_distance(slice(x, -1, begin, begin + each), cube(each, o.scale));
    const Var p = softmax(-o.inverse_temperature * distances), average = mean(p, 0);
    of_tokens = of_tokens - sum(p * log(p)) / static_cast<double>(x.shape()[0]);
    of_mean = of_mean - sum(average * log(average));
  }
  return of_tokens - of_mean * o.diversity;
}

Var signs(const Var& x, double scale) {
  const Tensor above = Tensor::full(x.shape(), scale, DType::f64), zero = Tensor::zeros(x.shape(), DType::f64);
  return where(greater(x.value(), zero), above, -Var(above));
}

Var whole_loss(const Var& x, const LookupFreeOptions& o) {
  return entropy_terms(x, o) * o.entropy_weight + mean(square(x - signs(x, o.scale))) * o.commitment_weight;
}

// For two tokens of four bits per sample.
LookupFreeOptions options(int64_t groups = 1, int64_t chunk = 4096) {
  return {.bits = 4,
          .groups = groups,
          .scale = 0.5,
          .inverse_temperature = 2,
          .entropy_weight = 0.7,
          .diversity = 1.3,
          .commitment_weight = 0.25,
          .chunk = chunk,
          .dtype = DType::f64};
}
Var tokens(const Inputs& x) { return reshape(x.rows[0], {x.rows[0].size() / 4, 4}); }

struct LossOnly : LossCase {
  LossOnly(std::string variant, const LookupFreeOptions& o)
      : LossCase(
            "LFQ", std::move(variant), {{{2, 4}}},
            [=](const Inputs& x, Communicator& comm) {
              return LookupFree(o)(x.rows[0], {.training = true}, comm).loss;
            },
            [=](const Inputs& x) { return whole_loss(tokens(x), o); }) {}
};
const LossOnly plain{"entropies", options()};
const LossOnly in_groups{"groups of bits", options(2)};
const LossOnly by_bit{"every bit alone", options(4)};
const LossOnly in_chunks{"chunks of tokens", options(1, 3)};

const LossCase masked{
    "LFQ",
    "mask",
    {{{2, 4}}},
    [](const Inputs& x, Communicator& comm) {
      return LookupFree(options())(x.rows[0], {.training = true}, comm, mask_of(x)).loss;
    },
    [](const Inputs& x) { return whole_loss(gather_rows(tokens(x), unmasked(x.rows[0])), options()); }};

// No finite differences if the loss depends on the values, which jump; their gradient is that of the tokens.
const LossCase with_values{"LFQ",
                           "values",
                           {{{2, 4}, {2, 4}}},
                           [](const Inputs& x, Communicator& comm) {
                             return with_decoder(LookupFree(options())(x.rows[0], {.training = true}, comm), x.rows[1],
                                                 x, comm);
                           },
                           [](const Inputs& x) {
                             const Var values = x.rows[0] + detach(signs(x.rows[0], 0.5) - x.rows[0]);
                             return with_decoder(whole_loss(tokens(x), options()), values, x.rows[1]);
                           },
                           0};

BinarySphericalOptions spherical(int64_t groups) {
  return {.bits = 4,
          .groups = groups,
          .temperature = 4,
          .entropy_weight = 0.7,
          .diversity = 1.3,
          .commitment_weight = 0.25,
          .dtype = DType::f64};
}

Var whole_spherical(const Inputs& x, int64_t groups) {
  const LookupFreeOptions o = {
      .bits = 4, .groups = groups, .scale = 0.5, .inverse_temperature = 2, .entropy_weight = 0.7, .diversity = 1.3};
  const Var u = div_along(tokens(x), sqrt(sum(square(tokens(x)), 1)), 0);
  const Var values = u + detach(signs(u, 0.5) - u);
  return with_decoder(whole_loss(u, o), reshape(values, x.rows[1].shape()), x.rows[1]);
}

struct Spherical : LossCase {
  Spherical(std::string variant, int64_t groups)
      : LossCase(
            "BSQ", std::move(variant), {{{2, 4}, {2, 4}}},
            [=](const Inputs& x, Communicator& comm) {
              return with_decoder(BinarySpherical(spherical(groups))(x.rows[0], {.training = true}, comm), x.rows[1], x,
                                  comm);
            },
            [=](const Inputs& x) { return whole_spherical(x, groups); }, 0) {}
};
const Spherical by_bits{"every bit alone", 4};
const Spherical joint{"all bits together", 1};

}  // namespace
}  // namespace weft
