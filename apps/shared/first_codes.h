#pragma once
// Where a quantizer's codes begin: among the tokens of the first samples, of all ranks.
#include "apps/shared/training.h"
#include "data/batches.h"
#include "models/vq_vae.h"

namespace weft {

// The quantizer sees the tokens of a batch once before it is used in training; the encoder stays as it is.
void find_first_codes(VqVae& network, const LabelledImages& data, const LocalBatch& batch, const Init& init,
                      Communicator& comm);

}  // namespace weft
