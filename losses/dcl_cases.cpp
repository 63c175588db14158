#include "engine/ops/elementwise.h"
#include "engine/ops/matmul.h"
#include "engine/ops/normalize.h"
#include "engine/ops/reduce.h"
#include "engine/ops/shape_ops.h"
#include "losses/case.h"
#include "losses/dcl.h"

namespace weft {
namespace {

// A matrix with its diagonal moved out of sight.
Var without_diagonal(const Var& x) {
  const int64_t n = x.shape()[0];
  Tensor self = Tensor::zeros({n, n}, DType::f64);
  for (int64_t i = 0; i < n; ++i) self.mutate<double>()[i * n + i] = 1e9;
  return x - Var(self);
}

// One direction: z0 with others of z0 and of z1.
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

// Weights are constants to backward, which finite differences cannot know.
LossCase with(const char* variant, const DclOptions& options) {
  const bool weighted = options.weights != DclWeights::none;
  return {weighted ? "DCLW" : "DCL",
          variant,
          {{{3}, {3}}},
          [=](const LossCase::Inputs& x, Communicator& comm) { return dcl(x.rows[0], x.rows[1], options, comm); },
          [=](const LossCase::Inputs& x) { return whole_dcl(x, weighted); },
          weighted ? 0 : 2};
}

const LossCase dcl_cases[] = {
    with("gather", {}),
    with("ring", {.exchange = {Exchange::Way::ring}}),
    with("both ways", {.exchange = {Exchange::Way::both_ways}}),
    with("in turn", {.exchange = {Exchange::Way::in_turn}}),
    with("chunked", {.exchange = {Exchange::Way::chunked, 1}}),
    with("gather", {.weights = DclWeights::of_batch}),
    with("ring", {.weights = DclWeights::of_batch, .exchange = {Exchange::Way::ring}}),
};

}  // namespace
}  // namespace weft
