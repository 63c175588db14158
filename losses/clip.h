#pragma once
// The loss of CLIP: every image picks its text among all ranks' texts, and every text its image. With images x and
// texts y, normalized by the caller, and scale s (logit_scale.h):
//
//   L = 1/2B sum_i (log sum_j exp(s x_i.y_j)  +  log sum_j exp(s x_j.y_i)  -  2 s x_i.y_i)
//
// In three forms, equal in value and in all gradients:
//
//   one_tower    own images with all texts, which gives rows and columns at once; per text, log-sum-exps are combined
//                over ranks. b x B scores; texts travel, and B numbers.
//   local_rows   own images with all texts and own texts with all images. Twice b x B scores; both towers travel.
//   replicated   everybody computes everything. B x B scores; both towers travel, by `gather` whatever is asked for.
#include "losses/exchange.h"

namespace weft {

enum class ClipForm : uint8_t { one_tower, local_rows, replicated };

struct ClipOptions {
  ClipForm form = ClipForm::one_tower;
  Exchange exchange = {};
};

// This rank's share, of features (b, d).
Var clip_loss(const Var& images, const Var& texts, const Var& scale, const ClipOptions& options, Communicator& comm,
              Site caller = Site::here());

}  // namespace weft
