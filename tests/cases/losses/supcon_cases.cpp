// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "tests/cases/losses/loss_case.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/engine/tape/checks.h"
#include "weft/losses/common/division.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/common/precision.h"
#include "weft/losses/contrastive/all_keys.h"
#include "weft/losses/contrastive/supcon.h"

namespace weft {
namespace {

constexpr int64_t classes = 4;

// The last class has a single feature, which therefore has no positives.
Tensor labels_of(const LossCase::Inputs& x) {
  Tensor labels({x.rows[0].shape()[0]}, DType::i64);
  for (int64_t i = 0; i < labels.size(); ++i) {
    const int64_t number = x.first + i;
    labels.mutate<int64_t>()[i] = number == 4 ? 3 : number * number % 3;
  }
  return labels;
}

// By a matrix that weights every pair of features.
Var whole_supcon(const LossCase::Inputs& x) {
  const Var z = l2_normalize(x.rows[0]);
  const Tensor labels = labels_of(x);
  const int64_t n = labels.size();
  Tensor self = Tensor::zeros({n, n}, DType::f64), weights = Tensor::zeros({n, n}, DType::f64);
  double counted = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto positive = [&](int64_t j) { return j != i && labels.data<int64_t>()[j] == labels.data<int64_t>()[i]; };
    double count = 0;
    for (int64_t j = 0; j < n; ++j) count += positive(j);
    for (int64_t j = 0; j < n; ++j) weights.mutate<double>()[i * n + j] = positive(j) ? 1 / count : 0;
    self.mutate<double>()[i * n + i] = 1e9;
    counted += count > 0;
  }
  const Var logits = matmul(z, z, Transpose::no, Transpose::yes) / 0.1;
  return -sum(log_softmax(logits - Var(self)) * Var(weights)) / counted;
}

LossCase supcon_case(const char* variant, KeySchedule schedule) {
  return {"SupCon",
          variant,
          {{{3}}},
          [=](const LossCase::Inputs& x, Communicator& comm) {
            return supcon(x.rows[0], labels_of(x), classes, {.schedule = schedule}, comm);
          },
          whole_supcon};
}

const LossCase supcon_cases[] = {
    supcon_case("gather", {}),
    supcon_case("ring", {KeySchedule::ring}),
    supcon_case("both ways", {KeySchedule::both_ways}),
    supcon_case("per rank", {KeySchedule::per_rank}),
    supcon_case("chunked", {KeySchedule::chunked, 2}),
};

}  // namespace

}  // namespace weft
