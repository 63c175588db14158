// SPDX-License-Identifier: Apache-2.0
#pragma once
// The initial codes of a quantizer: from the tokens of all ranks' first samples.
#include "weft/data/batches.h"
#include "weft/models/vq_vae.h"
#include "weft/optim/training.h"

namespace weft {

// Passes the tokens of one batch through the quantizer before training. The encoder does not change.
void find_first_codes(VqVae& network, const LabelledImages& data, const LocalBatch& batch, const Init& init,
                      Communicator& comm);

}  // namespace weft
