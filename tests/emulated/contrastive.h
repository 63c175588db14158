// SPDX-License-Identifier: Apache-2.0
#pragma once
// Contrastive losses of other libraries, whose reducer averages: each rank returns its own loss, and the mean over
// ranks is the loss. The values are those of losses/contrastive; the gradients depend on the adjoint. See gather.h
// for what this is for. All features are normalized by the caller.
#include "tests/emulated/gather.h"

namespace weft::emulated {

// The loss of each of this rank's pairs, for CLIP: (b), in f64.
Var clip_losses(const Var& images, const Var& texts, const Var& scale, Adjoint adjoint, Communicator& comm);

// CLIP where each rank computes its own rows (OpenCLIP's local_loss), or all ranks the whole loss.
Var clip_of_own_rows(const Var& images, const Var& texts, const Var& scale, Adjoint adjoint, Communicator& comm);
Var clip_of_all_rows(const Var& images, const Var& texts, const Var& scale, Adjoint adjoint, Communicator& comm);

// CLIP by cached features: in each of the passes one part of this rank's rows has a gradient, and the shared scale has
// one in all of them. Returns the sum of the passes' losses, each of which has the value of the whole loss.
Var clip_of_cached_features(const Var& images, const Var& texts, const Var& scale, int passes, Communicator& comm);

Var siglip(const Var& images, const Var& texts, const Var& scale, const Var& bias, Adjoint adjoint, Communicator& comm);
Var nt_xent(const Var& first, const Var& second, double temperature, Adjoint adjoint, Communicator& comm);

}  // namespace weft::emulated
