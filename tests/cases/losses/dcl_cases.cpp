// SPDX-License-Identifier: Apache-2.0
#include "tests/cases/losses/loss_case.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/contrastive/dcl.h"

namespace weft {
namespace {

// The matrix with its diagonal so negative that exp() of it vanishes.
Var without_diagonal(const Var& x) {
  const int64_t n = x.shape()[0];
  Tensor self = Tensor::zeros({n, n}, DType::f64);
  for (int64_t i = 0; i < n; ++i) self.mutate<double>()[i * n + i] = 1e9;
  return x - Var(self);
}

// One direction of the loss: compares z0 with the other samples of z0 and of z1.
Var direction(const Var& z0, const Var& z1, bool weighted) {
  const auto similarities = [](const Var& a, const Var& b) {
    return matmul(a, b, Transpose::no, Transpose::yes) / 0.1;
  };
  const Var negatives = concat({without_diagonal(similarities(z0, z0)), without_diagonal(similarities(z0, z1))}, 1);
  Var positives = sum(z0 * z1, 1) / 0.1;
  if (weighted) {
    const Tensor at = softmax(Var(sum(z0 * z1, 1).value()) / 0.5).value();
    positives = positives * (2 - static_cast<double>(z0.shape()[0]) * Var(at));
  }
  return mean(log_sum_exp(negatives, 1) - positives);
}

Var whole_dcl(const LossCase::Inputs& x, bool weighted) {
  const Var a = l2_normalize(x.rows[0]), b = l2_normalize(x.rows[1]);
  return (direction(a, b, weighted) + direction(b, a, weighted)) / 2;
}

// Weights are constants in backward but not in finite differences, so these check the unweighted cases only.
LossCase dcl_case(const char* variant, const DclOptions& options) {
  const bool weighted = options.weights != DclWeights::none;
  return {weighted ? "DCLW" : "DCL",
          variant,
          {{{3}, {3}}},
          [=](const LossCase::Inputs& x, Communicator& comm) { return dcl(x.rows[0], x.rows[1], options, comm); },
          [=](const LossCase::Inputs& x) { return whole_dcl(x, weighted); },
          weighted ? 0 : 2};
}

const LossCase dcl_cases[] = {
    dcl_case("gather", {}),
    dcl_case("ring", {.schedule = {KeySchedule::ring}}),
    dcl_case("both ways", {.schedule = {KeySchedule::both_ways}}),
    dcl_case("per rank", {.schedule = {KeySchedule::per_rank}}),
    dcl_case("chunked", {.schedule = {KeySchedule::chunked, 1}}),
    dcl_case("gather", {.weights = DclWeights::of_batch}),
    dcl_case("ring", {.weights = DclWeights::of_batch, .schedule = {KeySchedule::ring}}),
};

}  // namespace
}  // namespace weft
