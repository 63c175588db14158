// SPDX-License-Identifier: Apache-2.0
#pragma once
// How well a VQ autoencoder reconstructs pictures. Ranks divide the pictures. The results are bit-identical on every
// rank and on any number of ranks.
#include "apps/shared/evaluation/code_usage.h"
#include "weft/data/batches.h"
#include "weft/models/vq_vae.h"

namespace weft {

// The squared error, a mean over all values of the pictures. Adds the codes of all ranks' pictures to `usage`, if any.
double reconstruction_error(VqVae& network, const LabelledImages& data, const Init& like, Communicator& comm,
                            CodeUsage* usage = nullptr);

// Rows of the first pictures, each above a row of their reconstructions: for Run::picture.
Tensor beside_originals(VqVae& network, const LabelledImages& data, const Init& like, Communicator& comm);

}  // namespace weft
