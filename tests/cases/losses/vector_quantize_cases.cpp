// SPDX-License-Identifier: Apache-2.0
// Vector quantization in plain operations. Finite differences confirm only losses without rounding or stopped
// gradients.
#include <set>

#include "tests/cases/losses/quantizer_cases.h"
#include "weft/engine/maths/maths.h"
#include "weft/engine/ops/ops.h"
#include "weft/losses/quantizers/vector_quantize.h"

namespace weft {
namespace {

using Inputs = LossCase::Inputs;
constexpr int64_t dim = 3, codes = 5;

Init init(Device device = Device::cpu) { return {.key = {2}, .dtype = DType::f64, .device = device}; }

struct Variant {
  VectorQuantizeOptions options;
  bool masked = false, decoder = true;

  // The second rows are the decoder's weights. A learnable table is a shared input.
  Var share(const Inputs& x, Communicator& comm) const {
    VectorQuantize quantize("vq", options, init(x.rows[0].device()));
    Tape& tape = *x.rows[0].tape();
    if (options.codebook.learnable) tape.substitute(quantize.codebook.codes, x.shared[0]);
    const Pass pass = {.training = true, .key = {7}, .first_sample = x.first};
    const Quantized result = quantize(x.rows[0], pass, comm, masked ? mask_of(x) : Var());
    tape.substitute(quantize.codebook.codes, {});
    return decoder ? with_decoder(result, x.rows[1], x, comm) : result.loss;
  }
  Var whole(const Inputs& x) const;
  Var loss(const Var& tokens, const Var& table, const std::vector<double>& which) const;
};

Var Variant::whole(const Inputs& x) const {
  const Var flat = reshape(x.rows[0], {x.rows[0].size() / dim, dim});
  const Tensor numbers = masked ? unmasked(x.rows[0]) : Tensor::arange(flat.shape()[0]);
  const auto unit = [&](const Var& v) { return options.codebook.unit ? div_along(v, sqrt(sum(square(v), 1)), 0) : v; };
  const Var tokens = unit(gather_rows(flat, numbers));
  const Var table =
      options.codebook.learnable ? unit(x.shared[0]) : Var(VectorQuantize("vq", options, init()).codebook.codes.value);
  const Tensor which = argmin(pairwise_squared_distance(tokens, table).value(), 1);
  const Var total = loss(tokens, table, which.values());
  if (!decoder) return total;

  const Var found = gather_rows(table, which);
  Vars values;
  for (int64_t i = 0; i < tokens.shape()[0]; ++i) {
    const auto row = [&](const Var& v) { return reshape(slice(v, 0, i, i + 1), {dim}); };
    values.push_back(options.through == Through::rotation ? rotated(row(tokens), row(found))
                                                          : row(tokens) + detach(row(found) - row(tokens)));
  }
  const Var change = stack(values, 0) - gather_rows(flat, numbers);
  const Var all = flat + scatter_add_rows(change, numbers, flat.shape()[0]);
  return with_decoder(total, reshape(all, x.rows[0].shape()), x.rows[1]);
}

Var Variant::loss(const Var& tokens, const Var& table, const std::vector<double>& which) const {
  const Var found = gather_rows(table, Tensor::from({tokens.shape()[0]}, which, DType::i64));
  Var total = mean(square(tokens - detach(found))) * options.commitment_weight;
  if (options.codebook.learnable) total = total + mean(square(detach(tokens) - found)) * options.codebook_weight;
  if (options.orthogonal_weight != 0) {
    std::set<int64_t> used;
    for (int64_t k = 0; k < codes; ++k)
      if (!options.orthogonal_active_only || std::find(which.begin(), which.end(), k) != which.end()) used.insert(k);
    Var sum_of_squares = Tensor::zeros({}, DType::f64);
    const auto row = [&](int64_t k) { return slice(table, 0, k, k + 1); };
    for (const int64_t a : used)
      for (const int64_t b : used)
        if (a != b)
          sum_of_squares = sum_of_squares + square(sum(row(a) * row(b))) / (sum(square(row(a))) * sum(square(row(b))));
    total = total + sum_of_squares * (options.orthogonal_weight / static_cast<double>(used.size() * used.size()));
  }
  if (options.diversity_weight != 0) {
    Vars logits;
    for (int64_t k = 0; k < codes; ++k) {
      const Var code = reshape(slice(table, 0, k, k + 1), {dim});
      logits.push_back(sum(square(sub_along(tokens, code, -1)), 1) * -options.diversity_sharpness);
    }
    const Var p = exp(log_softmax(stack(logits, 1))), average = mean(p, 0);
    total = total + (maths::log(static_cast<double>(codes)) + sum(average * log(average))) * options.diversity_weight;
  }
  return total;
}

// The inputs are x, the decoder's weights if there is a decoder, and the table if it is learnable.
LossCase::Drawn drawn(const Variant& variant) {
  const Shape sample = variant.masked ? Shape{2, dim} : Shape{dim};
  LossCase::Drawn drawn{{sample}};
  if (variant.decoder) drawn.rows.push_back(sample);
  if (variant.options.codebook.learnable) drawn.shared.push_back({codes, dim});
  return drawn;
}

class VariantCase : Variant {
 public:
  VariantCase(std::string name, Variant variant, int orders)
      : Variant(variant),
        case_(
            "VectorQuantize", std::move(name), drawn(variant),
            [this](const Inputs& x, Communicator& comm) { return share(x, comm); },
            [this](const Inputs& x) { return Variant::whole(x); }, orders) {}

 private:
  LossCase case_;
};

constexpr CodebookOptions averaged = {.dim = dim, .codes = codes},
                          learnt = {.dim = dim, .codes = codes, .learnable = true};
constexpr CodebookOptions cosine = {.dim = dim, .codes = codes, .unit = true},
                          learnt_cosine = {.dim = dim, .codes = codes, .learnable = true, .unit = true};
const VariantCase vector_quantize_cases[] = {
    {"moving averages", {{averaged, 0.25}}, 0},
    {"moving averages, mask", {{averaged, 0.25}, true}, 0},
    {"rotation", {{averaged, 0.25, 1, Through::rotation}}, 0},
    {"cosine", {{cosine}}, 0},
    {"cosine, rotation, mask", {{cosine, 1, 1, Through::rotation}, true}, 0},
    {"learnable", {{learnt, 0.25}}, 0},
    {"learnable, cosine, mask", {{learnt_cosine, 0.25, 0.7}, true}, 0},
    {"orthogonal", {{learnt, 0, 0, Through::straight, 0.5}, false, false}, 2},
    {"orthogonal, active codes, mask", {{learnt, 0, 0, Through::straight, 0.5, true}, true, false}, 2},
    {"diversity", {{averaged, 1, 1, Through::straight, 0, false, 0, 0.3, 2}, false, false}, 2},
    {"diversity, learnable, mask", {{learnt, 0, 0, Through::straight, 0, false, 0, 0.3, 2}, true, false}, 2},
};

}  // namespace
}  // namespace weft
