#include "engine/ops/elementwise.h"
#include "engine/ops/matmul.h"
#include "engine/ops/normalize.h"
#include "engine/ops/reduce.h"
#include "engine/ops/shape_ops.h"
#include "losses/case.h"
#include "losses/info_nce.h"

namespace weft {
namespace {

Var info_nce_bank(Device device = Device::cpu) {
  return same_everywhere(l2_normalize(Tensor::uniform({4, 3}, {8}, -1, 1, DType::f64, device)).value());
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
// As MoCo: the logit of the own key stands first.
Var of_bank(const LossCase::Inputs& x) {
  const int64_t n = x.rows[0].shape()[0];
  const Var matching = sum(l2_normalize(x.rows[0]) * l2_normalize(x.rows[1]), 1) / 0.1;
  const Var logits = concat({reshape(matching, {n, 1}), similarities(x.rows[0], info_nce_bank())}, 1);
  return mean(cross_entropy(logits, Var(Tensor::zeros({n}, DType::i64))));
}

enum class Bank { none, there };  // made when it is used: a program's start is no time for kernels

LossCase info_nce_case(const char* variant, Bank bank, const InfoNceOptions& options,
                       Var (*whole)(const LossCase::Inputs&)) {
  return {"InfoNCE",
          variant,
          {{{3}, {3}}},
          [=](const LossCase::Inputs& x, Communicator& comm) {
            InfoNceOptions here = options;
            if (bank == Bank::there) here.negatives = info_nce_bank(x.rows[0].device());
            return info_nce(x.rows[0], x.rows[1], here, comm);
          },
          whole};
}

const LossCase info_nce_cases[] = {
    info_nce_case("gather", Bank::none, {}, of_batch),
    info_nce_case("ring", Bank::none, {.exchange = {Exchange::Way::ring}}, of_batch),
    info_nce_case("both ways", Bank::none, {.exchange = {Exchange::Way::both_ways}}, of_batch),
    info_nce_case("in turn", Bank::none, {.exchange = {Exchange::Way::in_turn}}, of_batch),
    info_nce_case("chunked", Bank::none, {.exchange = {Exchange::Way::chunked, 3}}, of_batch),
    info_nce_case("symmetric", Bank::none, {.symmetric = true}, of_both),
    info_nce_case("symmetric, ring", Bank::none, {.exchange = {Exchange::Way::ring}, .symmetric = true}, of_both),
    info_nce_case("batch and bank", Bank::there, {}, of_batch_and_bank),
    info_nce_case("bank alone, as MoCo", Bank::there, {.in_batch = false}, of_bank),
};

}  // namespace
}  // namespace weft
