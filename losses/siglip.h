#pragma once
// The loss of SigLIP: of every image and every text of all ranks, do they belong together? With images x and texts y,
// normalized by the caller, scale s (logit_scale.h), bias c, and z_ij = s x_i.y_j + c:
//
//   L = 1/B sum_ij log(1 + exp(-z_ij if i = j, else z_ij))
//
// Each rank computes its own images with all texts, which travel; their gradients return to their owners.
#include "losses/exchange.h"

namespace weft {

// This rank's share, of features (b, d).
Var siglip_loss(const Var& images, const Var& texts, const Var& scale, const Var& bias, const Exchange& exchange,
                Communicator& comm, Site caller = Site::here());

}  // namespace weft
