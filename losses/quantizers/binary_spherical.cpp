// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/quantizers/binary_spherical.h"

#include <cmath>

#include "weft/engine/ops/normalize.h"
#include "weft/losses/quantizers/tokens.h"

namespace weft {
namespace {

// On the sphere |u - c|^2 = 2 - 2 u.c, so half the temperature as inverse temperature gives the same assignments.
LookupFreeOptions on_the_sphere(const BinarySphericalOptions& options) {
  expect_positive("BinarySpherical: ", "temperature", options.temperature);
  return {.bits = options.bits,
          .groups = options.groups,
          .scale = 1 / std::sqrt(static_cast<double>(options.bits)),
          .inverse_temperature = options.temperature / 2,
          .entropy_weight = options.entropy_weight,
          .diversity = options.diversity,
          .commitment_weight = options.commitment_weight,
          .dtype = options.dtype};
}

}  // namespace

BinarySpherical::BinarySpherical(const BinarySphericalOptions& options)
    : Quantizer("BinarySpherical"), bits_(options.bits), corners_(on_the_sphere(options)) {}

Quantized BinarySpherical::apply(const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller) {
  const Tokens tokens(x, bits_, mask);
  const Quantized found = part(corners_, l2_normalize(tokens.rows()), pass, comm, {}, caller);
  return tokens.back(found.values, found.indices.value(), found.loss);
}

}  // namespace weft
