// SPDX-License-Identifier: Apache-2.0
// The errors of elementwise.h, reduce.h and matmul.h for bad input, each message once.
#include "tests/support/catch.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;

namespace {
const Tensor floats = Tensor::zeros({2, 3}), others = Tensor::zeros({3, 2}), wide = Tensor::zeros({2, 3}, DType::f64);
const Tensor integers = Tensor::zeros({2, 3}, DType::i64), empty = Tensor::zeros({0, 3}),
             batch = Tensor::zeros({4, 2, 3});
}  // namespace

TEST_CASE("elementwise ops refuse bad input with an error that names it") {
  CHECK_THROWS_WITH(Var(floats) + Var(others), "add: operands differ, f32 (2, 3) and f32 (3, 2)");
  CHECK_THROWS_WITH(Var(floats) * Var(wide), "mul: operands differ, f32 (2, 3) and f64 (2, 3)");
  CHECK_THROWS_WITH(weft::exp(integers), "exp: a floating tensor is needed, not i64");
  CHECK_THROWS_WITH(clamp(floats, 2, 1), "clamp: low 2 is above high 1");
  CHECK_THROWS_WITH(add_along(floats, Tensor::zeros({2}), 1),
                    "add_along: axis 1 of f32 (2, 3) needs a vector of its extent, not f32 (2)");
  CHECK_THROWS_WITH(less(floats, wide), "less: operands differ, f32 (2, 3) and f64 (2, 3)");
  CHECK_THROWS_WITH(where(floats, floats, floats), "where: the mask must be u8 (2, 3) on cpu, not f32 (2, 3) on cpu");
  CHECK_THROWS_WITH(cast(floats, DType::i64), "cast: gradients need a floating type, not i64; use value().to(i64)");
  CHECK_THROWS_WITH(cast(integers, DType::f32), "cast: a floating tensor is needed, not i64");
  CHECK_THROWS_WITH(straight_through(floats, others), "straight_through: operands differ, f32 (2, 3) and f32 (3, 2)");
}

TEST_CASE("reductions refuse bad input with an error that names it") {
  CHECK_THROWS_WITH(sum(integers, 0), "sum: a floating tensor is needed, not i64");
  CHECK_THROWS_WITH(sum(floats, 2), "shape: axis 2 of (2, 3), which has 2 axes");
  CHECK_THROWS_WITH(sum_outside(integers, 0), "sum_outside: a floating tensor is needed, not i64");
  CHECK_THROWS_WITH(repeat(floats, 0, -1), "repeat: a count of -1");
  CHECK_THROWS_WITH(mean(empty), "mean: of no elements, (0, 3)");
  CHECK_THROWS_WITH(mean(empty, 0), "mean: axis 0 of (0, 3) is empty");
  CHECK_THROWS_WITH(max(empty, 0), "max: axis 0 of (0, 3) is empty");
  CHECK_THROWS_WITH(min(empty, 0), "min: axis 0 of (0, 3) is empty");
  CHECK_THROWS_WITH(argmax(empty, 0), "argmax: axis 0 of (0, 3) is empty");
  CHECK_THROWS_WITH(argmin(empty, 0), "argmin: axis 0 of (0, 3) is empty");
  CHECK_THROWS_WITH(log_sum_exp(integers), "log_sum_exp: a floating tensor is needed, not i64");
  CHECK_THROWS_WITH(variance(floats, 0, 2), "variance: axis 0 of (2, 3) has too few elements");
  CHECK_THROWS_WITH(cumulative_sum(integers, 0), "cumulative_sum: a floating tensor is needed, not i64");
  CHECK_THROWS_WITH(top_k(floats, 4), "top_k: 4 of the 3 elements along axis 1 of (2, 3)");
  CHECK_THROWS_WITH(top_k(integers, 1), "top_k: a floating tensor is needed, not i64");
}

TEST_CASE("matmul refuses bad input with an error that names it") {
  CHECK_THROWS_WITH(matmul(floats, floats), "matmul: inner extents differ in (2, 3) x (2, 3)");
  CHECK_THROWS_WITH(matmul(floats, others, Transpose::yes), "matmul: inner extents differ in (2, 3)T x (3, 2)");
  CHECK_THROWS_WITH(matmul(floats, wide), "matmul: floating operands of one type are needed, not f32 and f64");
  CHECK_THROWS_WITH(matmul(floats, Tensor::zeros({3})), "matmul: matrices are needed, not (2, 3) x (3)");
  CHECK_THROWS_WITH(matmul(batch, Tensor::zeros({5, 3, 2})), "matmul: batches differ in (4, 2, 3) x (5, 3, 2)");
  CHECK_THROWS_WITH(linear(floats, batch), "linear: the weight must be a matrix, not (4, 2, 3)");
  CHECK_THROWS_WITH(linear(floats, others, Tensor::zeros({3})),
                    "linear: the bias must be f32 (2) on cpu, not f32 (3) on cpu");
  CHECK_THROWS_WITH(pairwise_squared_distance(floats, others),
                    "pairwise_squared_distance: rows of one width are needed, not (2, 3) and (3, 2)");
}
