#pragma once
// Decoupled contrastive learning: NT-Xent without the positive among those to pick from, so that easy positives do not
// weaken the gradient of the negatives. With z the 2B normalized features of all ranks and i' the counterpart of i:
//
//   L = 1/2B sum_i (log sum_(j != i, i') exp(z_i.z_j / temperature)  -  w_i z_i.z_i' / temperature)
//
// w is 1 (DCL), or more for pairs that are less alike (DCLW), and is then no subject of differentiation:
//
//   w_i = 2 - exp(z_i.z_i' / sigma) / mean_j exp(z_j.z_j' / sigma)
//
// The mean is that of all ranks' pairs, or of this rank's alone: then the loss depends on how the batch is divided.
#include "losses/exchange.h"

namespace weft {

enum class DclWeights : uint8_t { none, of_batch, of_rank };

struct DclOptions {
  double temperature = 0.1;
  DclWeights weights = DclWeights::none;
  double sigma = 0.5;
  Exchange exchange = {};
};

// This rank's share, of features (b, d) of two views, which need not be normalized. Of a single sample, which has no
// negatives, the loss is zero.
Var dcl(const Var& first, const Var& second, const DclOptions& options, Communicator& comm, Site caller = Site::here());

}  // namespace weft
