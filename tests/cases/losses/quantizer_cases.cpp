// SPDX-License-Identifier: Apache-2.0
#include "tests/cases/losses/quantizer_cases.h"

#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {
namespace {

bool counts(int64_t sample) { return sample % 3 != 1; }

}  // namespace

Var with_decoder(const Quantized& quantized, const Var& weights, const LossCase::Inputs& x, Communicator& comm) {
  return quantized.loss + share(sum(quantized.values * weights), x.total, comm);
}

Var with_decoder(const Var& loss, const Var& values, const Var& weights) {
  return loss + sum(values * weights) / static_cast<double>(weights.shape()[0]);
}

// The rotation matrix is I + A + A^2 / (1 + cosine) with A = v u' - u v', u and v the directions of token and code.
Var rotated(const Var& token, const Var& code) {
  const int64_t dim = token.size();
  const Var x = detach(token), q = detach(code), lengths = sqrt(sum(square(q))) / sqrt(sum(square(x)));
  const Var u = x / repeat(sqrt(sum(square(x))), 0, dim), v = q / repeat(sqrt(sum(square(q))), 0, dim);
  const auto outer = [=](const Var& a, const Var& b) { return matmul(reshape(a, {dim, 1}), reshape(b, {1, dim})); };
  const Var a = outer(v, u) - outer(u, v), cosine = repeat(reshape(sum(u * v), {1}), 0, dim * dim);
  const Var change = a + matmul(a, a) / reshape(1 + cosine, {dim, dim});
  const Var result = token + reshape(matmul(change, reshape(token, {dim, 1})), {dim});
  return result * repeat(lengths, 0, dim);
}

Var mask_of(const LossCase::Inputs& x) {
  const Shape front = x.rows[0].shape().without(-1);
  Tensor mask(front, DType::u8);
  const int64_t tokens = front.product(1, front.rank());
  for (int64_t i = 0; i < mask.size(); ++i) mask.mutate<uint8_t>()[i] = counts(x.first + i / tokens);
  return constant_like(mask.to(x.rows[0].device()), x.rows[0]);
}

Tensor unmasked(const Var& tokens) {
  std::vector<double> numbers;
  const Shape front = tokens.shape().without(-1);
  const int64_t each = front.product(1, front.rank());
  for (int64_t i = 0; i < front.size(); ++i)
    if (counts(i / each)) numbers.push_back(static_cast<double>(i));
  return Tensor::from({static_cast<int64_t>(numbers.size())}, numbers, DType::i64);
}

}  // namespace weft
