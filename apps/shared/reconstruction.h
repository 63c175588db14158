#pragma once
// How well a VQ autoencoder makes pictures again. Ranks divide the pictures; the results are the same bits on every
// rank and on any number of ranks.
#include "apps/shared/code_usage.h"
#include "data/batches.h"
#include "models/vq_vae.h"

namespace weft {

// The squared error, a mean over all values of the pictures. The codes that they become are added to `usage`, which is
// that of all ranks then.
double reconstruction_error(VqVae& network, const LabelledImages& data, const Init& like, Communicator& comm,
                            CodeUsage& usage);

// The first pictures in rows, and under each row what the network makes of it: for Run::picture.
Tensor beside_originals(VqVae& network, const LabelledImages& data, const Init& like, Communicator& comm);

}  // namespace weft
