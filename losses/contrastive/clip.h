// SPDX-License-Identifier: Apache-2.0
#pragma once
// The loss of CLIP: the cross entropy of classifying, for every image, which text of the whole batch belongs to it, and
// for every text, which image. With images x and texts y, normalized by the caller, and scale s (logit_scale.h):
//
//   L = 1/2B sum_i (log sum_j exp(s x_i.y_j)  +  log sum_j exp(s x_j.y_i)  -  2 s x_i.y_i)
//
// Three forms have the same value and gradients. B is the number of pairs on all ranks, b that of this rank:
//
//   one_tower    scores own images with all texts, for rows and columns at once, and combines the texts' log-sum-exps
//                across ranks. b x B scores; the texts and B numbers cross ranks.
//   local_rows   scores own images with all texts, and own texts with all images. 2 b x B scores; both towers cross.
//   replicated   computes the whole loss on every rank. B x B scores; both towers cross, always by `gather`.
#include "weft/losses/common/key_schedule.h"

namespace weft {

enum class ClipForm : uint8_t { one_tower, local_rows, replicated };

struct ClipOptions {
  ClipForm form = ClipForm::one_tower;
  KeySchedule schedule = {};
};

// Returns this rank's share. Features are (b, d).
Var clip_loss(const Var& images, const Var& texts, const Var& scale, const ClipOptions& options, Communicator& comm,
              Site caller = Site::here());

}  // namespace weft
