// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/quantizers/soft_corners.h"

#include <algorithm>
#include <limits>

#include "weft/engine/ops/activation_checkpoint.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {
namespace {

// The bits of each corner: (bits, corners). The first bit is the most significant.
Var corners(int64_t bits, const Var& like) {
  const int64_t count = int64_t{1} << bits;
  Tensor table({bits, count}, DType::f64);
  auto* at = table.mutate<double>();
  for (int64_t bit = bits - 1; bit >= 0; --bit)
    for (int64_t corner = 0; corner < count; ++corner) *at++ = static_cast<double>(corner >> bit & 1);
  return replicated_constant(table.to(like.dtype()).to(like.device()));
}

// The probability of every corner for every token: (groups, tokens, corners).
Var assignments(const Var& logits) { return softmax(matmul(logits, corners(logits.shape()[-1], logits))); }

Var assigned(const Var& logits, int64_t groups) {
  const int64_t tokens = logits.shape()[0], bits = logits.shape()[1] / groups, upper = bits / 2;
  if (bits == 1) return reshape(stack({sum(sigmoid(-logits), 0), sum(sigmoid(logits), 0)}, -1), {2 * groups});
  const Var grouped = permute(reshape(logits, {tokens, groups, bits}), {1, 0, 2});
  const Var high = assignments(slice(grouped, -1, 0, upper)), low = assignments(slice(grouped, -1, upper, bits));
  return reshape(matmul(high, low, Transpose::yes), {groups << bits});
}

}  // namespace

// The entropy of a bit with logit +-u, u >= 0, is log(1 + e^-u) + u / (1 + e^u). Its terms are positive, so nothing
// cancels.
Var entropy_of_assignments(const Var& logits) {
  const Var size = abs(logits);
  return sum(softplus(-size) + size * sigmoid(-size));
}

Var assigned_to_corners(const Var& logits, int64_t groups, int64_t chunk) {
  const int64_t tokens = logits.shape()[0];
  if (tokens <= chunk) return assigned(logits, groups);
  Var sum;
  for (int64_t begin = 0; begin < tokens; begin += chunk) {
    const Var part = checkpoint([=](std::span<const Var> x) { return assigned(x[0], groups); },
                                {slice(logits, 0, begin, std::min(begin + chunk, tokens))});
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

Var entropy(const Var& p) {
  const double least = p.dtype() == DType::f64 ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
  return -sum(p * log(clamp(p, least, std::numeric_limits<double>::infinity())));
}

}  // namespace weft
