// SPDX-License-Identifier: Apache-2.0
#pragma once
// The initial codes of a quantizer: from a file, or from the tokens of all ranks' first samples.
#include "apps/shared/encoder/initial_weights.h"
#include "weft/data/batches.h"
#include "weft/models/vq_vae.h"
#include "weft/optim/training.h"

namespace weft {

// A VQ autoencoder called "vq-vae" with all its tensors, and `others`. The codes begin with those of a file only if all
// tensors of the quantizer are in it.
InitialTensors initial_tensors(VqVae& network, const std::vector<Parameter*>& others = {});

// Passes the tokens of one batch through the quantizer before training. The encoder does not change.
void find_first_codes(VqVae& network, const LabelledImages& data, const LocalBatch& batch, const Init& init,
                      Communicator& comm);

}  // namespace weft
