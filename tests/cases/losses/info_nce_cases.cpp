// SPDX-License-Identifier: Apache-2.0
#include "tests/cases/losses/loss_case.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/contrastive/info_nce.h"

namespace weft {
namespace {

Var info_nce_bank(Device device = Device::cpu) {
  return replicated_constant(l2_normalize(Tensor::uniform({4, 3}, {8}, -1, 1, DType::f64, device)).value());
}

Var similarities(const Var& a, const Var& b) {
  return matmul(l2_normalize(a), l2_normalize(b), Transpose::no, Transpose::yes) / 0.1;
}
Var own(const Var& logits) { return mean(cross_entropy(logits, Var(Tensor::arange(logits.shape()[0])))); }

Var of_batch(const LossCase::Inputs& x) { return own(similarities(x.rows[0], x.rows[1])); }
Var of_both(const LossCase::Inputs& x) {
  return (own(similarities(x.rows[0], x.rows[1])) + own(similarities(x.rows[1], x.rows[0]))) / 2;
}
Var of_batch_and_bank(const LossCase::Inputs& x) {
  return own(concat({similarities(x.rows[0], x.rows[1]), similarities(x.rows[0], info_nce_bank())}, 1));
}
// As in MoCo, with the logit of the query's own key in the first column.
Var of_bank(const LossCase::Inputs& x) {
  const int64_t n = x.rows[0].shape()[0];
  const Var matching = sum(l2_normalize(x.rows[0]) * l2_normalize(x.rows[1]), 1) / 0.1;
  const Var logits = concat({reshape(matching, {n, 1}), similarities(x.rows[0], info_nce_bank())}, 1);
  return mean(cross_entropy(logits, Var(Tensor::zeros({n}, DType::i64))));
}

enum class Bank { none, present };  // not a tensor, since no kernel may run before main()

LossCase info_nce_case(const char* variant, Bank bank, const InfoNceOptions& options,
                       Var (*whole)(const LossCase::Inputs&)) {
  return {"InfoNCE",
          variant,
          {{{3}, {3}}},
          [=](const LossCase::Inputs& x, Communicator& comm) {
            InfoNceOptions here = options;
            if (bank == Bank::present) here.negatives = info_nce_bank(x.rows[0].device());
            return info_nce(x.rows[0], x.rows[1], here, comm);
          },
          whole};
}

const LossCase info_nce_cases[] = {
    info_nce_case("gather", Bank::none, {}, of_batch),
    info_nce_case("ring", Bank::none, {.schedule = {KeySchedule::ring}}, of_batch),
    info_nce_case("both ways", Bank::none, {.schedule = {KeySchedule::both_ways}}, of_batch),
    info_nce_case("per rank", Bank::none, {.schedule = {KeySchedule::per_rank}}, of_batch),
    info_nce_case("chunked", Bank::none, {.schedule = {KeySchedule::chunked, 3}}, of_batch),
    info_nce_case("symmetric", Bank::none, {.symmetric = true}, of_both),
    info_nce_case("symmetric, ring", Bank::none, {.schedule = {KeySchedule::ring}, .symmetric = true}, of_both),
    info_nce_case("batch and bank", Bank::present, {}, of_batch_and_bank),
    info_nce_case("bank alone, as MoCo", Bank::present, {.in_batch = false}, of_bank),
};

}  // namespace
}  // namespace weft
