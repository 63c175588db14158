// SPDX-License-Identifier: Apache-2.0
#include "tests/cases/losses/loss_case.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/contrastive/pairs.h"
#include "weft/losses/contrastive/siglip.h"

namespace weft {
namespace {

Var whole_siglip(const LossCase::Inputs& x) {
  const Var products = matmul(x.rows[0], x.rows[1], Transpose::no, Transpose::yes);
  const int64_t n = products.shape()[0];
  const auto everywhere = [&](const Var& scalar) { return reshape(repeat(scalar, 0, n * n), {n, n}); };
  Tensor signs = Tensor::full({n, n}, -1, DType::f64);
  for (int64_t i = 0; i < n; ++i) signs.mutate<double>()[i * n + i] = 1;
  const Var logits = products * everywhere(exp(x.shared[0])) + everywhere(x.shared[1]);
  return -sum(log(sigmoid(logits * Var(signs)))) / static_cast<double>(n);
}

LossCase siglip_case(const char* variant, KeySchedule schedule) {
  return {"SigLIP",
          variant,
          {{{3}, {3}}, {{}, {}}},
          [=](const LossCase::Inputs& x, Communicator& comm) {
            return siglip_loss(x.rows[0], x.rows[1], exp(x.shared[0]), x.shared[1], schedule, comm);
          },
          whole_siglip};
}

const LossCase siglip_cases[] = {
    siglip_case("gather", {}),
    siglip_case("ring", {KeySchedule::ring}),
    siglip_case("both ways", {KeySchedule::both_ways}),
    siglip_case("per rank", {KeySchedule::per_rank}),
    siglip_case("chunked", {KeySchedule::chunked, 2}),
};

}  // namespace

}  // namespace weft
