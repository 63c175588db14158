// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/quantizers/codebook/codebook_losses.h"

#include <algorithm>

#include "weft/collectives/collectives.h"
#include "weft/engine/maths/maths.h"
#include "weft/engine/ops/activation_checkpoint.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {
namespace {

constexpr int64_t tokens_at_once = 4096;

// The sum over tokens of the assignments to each code: (codes). Backward recomputes the assignments in the same chunks.
Var assigned(const Var& tokens, const Var& codes, double sharpness) {
  const int64_t count = tokens.shape()[0];
  const auto assign = [=](std::span<const Var> in) {
    return sum(softmax(pairwise_squared_distance(in[0], in[1]) * -sharpness), 0);
  };
  Var all;
  for (int64_t begin = 0; begin == 0 || begin < count; begin += tokens_at_once) {
    const Var some = slice(tokens, 0, begin, std::min(begin + tokens_at_once, count));
    const Var part = checkpoint(assign, {some, codes});
    all = all.defined() ? all + part : part;
  }
  return all;
}

}  // namespace

Var orthogonality(const Var& codes) {
  const Var unit = l2_normalize(codes);
  return mean(square(matmul(unit, unit, Transpose::no, Transpose::yes))) - 1 / static_cast<double>(codes.shape()[0]);
}

Var unevenness(const Var& tokens, const Var& codes, double sharpness, int64_t total, Communicator& comm, Site site) {
  const Var shares = all_reduce(assigned(tokens, codes, sharpness), comm, ReduceOp::sum, site) /
                     static_cast<double>(std::max<int64_t>(total, 1));
  const Var logs = log(clamp(shares, 1e-30, 2));
  return sum(shares * logs) + maths::log(static_cast<double>(codes.shape()[0]));
}

}  // namespace weft
