// SPDX-License-Identifier: Apache-2.0
#pragma once
// The loss of SigLIP: the binary cross entropy of deciding, for every image and every text of the whole batch, whether
// they are a pair. With images x and texts y, normalized by the caller, scale s (logit_scale.h), bias c, and
// z_ij = s x_i.y_j + c:
//
//   L = 1/B sum_ij log(1 + exp(-z_ij if i = j, else z_ij))
//
// Each rank scores its own images with all texts. The texts cross ranks by the schedule (key_schedule.h), and their
// gradients return to their ranks.
#include "weft/losses/common/key_schedule.h"

namespace weft {

// Returns this rank's share. Features are (b, d).
Var siglip_loss(const Var& images, const Var& texts, const Var& scale, const Var& bias, const KeySchedule& schedule,
                Communicator& comm, Site caller = Site::here());

}  // namespace weft
