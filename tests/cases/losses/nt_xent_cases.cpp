// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tests/cases/losses/loss_case.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/contrastive/nt_xent.h"

namespace weft {
namespace {

// A bank of five keys.
Var nt_xent_bank(Device device = Device::cpu) {
  return replicated_constant(l2_normalize(Tensor::uniform({5, 3}, {7}, -1, 1, DType::f64, device)).value());
}

// The cross entropy of the matrix of all similarities without its diagonal.
Var whole_nt_xent(const LossCase::Inputs& x, const Var& negatives) {
  const Var z = l2_normalize(concat({x.rows[0], x.rows[1]}, 0));
  const int64_t n = z.shape()[0], b = n / 2;
  Tensor self = Tensor::zeros({n, n}, DType::f64), targets({n}, DType::i64);
  for (int64_t i = 0; i < n; ++i) {
    self.mutate<double>()[i * n + i] = 1e9;
    targets.mutate<int64_t>()[i] = (i + b) % n;
  }
  Var logits = matmul(z, z, Transpose::no, Transpose::yes) / 0.5 - Var(self);
  if (negatives.defined()) logits = concat({logits, matmul(z, negatives, Transpose::no, Transpose::yes) / 0.5}, 1);
  return mean(cross_entropy(logits, Var(targets)));
}

LossCase nt_xent_case(const char* name, KeySchedule schedule) {
  return {"NT-Xent",
          name,
          {{{3}, {3}}},
          [=](const LossCase::Inputs& x, Communicator& comm) {
            return nt_xent(x.rows[0], x.rows[1], {.schedule = schedule}, comm);
          },
          [](const LossCase::Inputs& x) { return whole_nt_xent(x, {}); }};
}

const LossCase nt_xent_cases[] = {
    nt_xent_case("gather", {KeySchedule::gather}),
    nt_xent_case("ring", {KeySchedule::ring}),
    nt_xent_case("both ways", {KeySchedule::both_ways}),
    nt_xent_case("per rank", {KeySchedule::per_rank}),
    nt_xent_case("chunked", {KeySchedule::chunked, 3}),
    {"NT-Xent",
     "memory bank",
     {{{3}, {3}}},
     [](const LossCase::Inputs& x, Communicator& comm) {
       return nt_xent(x.rows[0], x.rows[1], {.negatives = nt_xent_bank(x.rows[0].device())}, comm);
     },
     [](const LossCase::Inputs& x) { return whole_nt_xent(x, nt_xent_bank()); }},
};

}  // namespace
}  // namespace weft
