// SPDX-License-Identifier: Apache-2.0
#include "tests/cases/losses/loss_case.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/common/moments.h"
#include "weft/losses/common/precision.h"
#include "weft/losses/statistics/barlow_twins.h"

namespace weft {
namespace {

Var standardized(const Var& x) { return mul_along(sub_along(x, mean(x, 0), -1), rsqrt(variance(x, 0) + 0.1), -1); }

const LossCase barlow_twins_case{"Barlow Twins",
                                 "",
                                 {{{3}, {3}}},
                                 [](const LossCase::Inputs& x, Communicator& comm) {
                                   return barlow_twins(x.rows[0], x.rows[1], {.lambda = 0.3, .epsilon = 0.1}, comm);
                                 },
                                 [](const LossCase::Inputs& x) {
                                   const Var c = matmul(transpose(standardized(x.rows[0])), standardized(x.rows[1])) /
                                                 static_cast<double>(x.total);
                                   const Var one = Tensor::from({3, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1}, DType::f64);
                                   return sum(square((c - one) * one)) + 0.3 * sum(square(c * (1.0 - one)));
                                 }};

}  // namespace

}  // namespace weft
