// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/contrastive/siglip.h"

#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/contrastive/pairs.h"

namespace weft {

Var siglip_loss(const Var& images, const Var& texts, const Var& scale, const Var& bias, const KeySchedule& schedule,
                Communicator& comm, Site caller) try {
  const Site site = LossCall("siglip_loss", caller).schedule(schedule);
  const Pairs pairs(images, texts, comm, site);
  expect_scalar("the scale", scale, pairs.first);
  expect_scalar("the bias", bias, pairs.first);
  const AllKeys all_texts(pairs.second, pairs.division.rows, schedule, comm, site);
  const Var sum_of_losses = sum(all_texts.softplus_sum(pairs.first, scale, bias, pairs.numbers()));
  return share(cast(sum_of_losses, pairs.first.dtype()), pairs.division.total, comm);
} catch (Error& error) {
  fail_in("siglip_loss", caller, error);
}

}  // namespace weft
