// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/muon.h"

#include <limits>

#include "weft/collectives/sharding.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {

Tensor orthogonalized(const Tensor& matrix, const Muon& rule) {
  const bool wide = matrix.shape()[0] <= matrix.shape()[1];
  const auto yes = Transpose::yes, no = Transpose::no;
  Var x = matrix.to(rule.in_bf16 ? DType::bf16 : matrix.dtype());
  const Var length = clamp(norm(x), rule.epsilon, std::numeric_limits<double>::infinity());
  x = reshape(div_along(reshape(x, {1, x.size()}), reshape(length, {1}), 0), matrix.shape());
  const auto [a, b, c] = rule.coefficients;
  for (int i = 0; i < rule.iterations; ++i) {
    const Var square = wide ? matmul(x, x, no, yes) : matmul(x, x, yes, no);
    const Var update = square * b + matmul(square, square) * c;
    x = x * a + (wide ? matmul(update, x) : matmul(x, update));
  }
  return x.value().to(matrix.dtype());
}

Tensor orthogonalized(const Tensor& mine, const Parameter& parameter, const Muon& rule) {
  const Tensor whole = is_divided(parameter) ? gathered(mine, *parameter.sharding) : mine;
  const Shape matrix = {whole.size() / whole.shape()[-1], whole.shape()[-1]};
  const Tensor result = orthogonalized(whole.reshape(matrix), rule).reshape(whole.shape());
  return is_divided(parameter) ? own_slice(result, *parameter.sharding) : result;
}

}  // namespace weft
