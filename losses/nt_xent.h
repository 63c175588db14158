#pragma once
// NT-Xent, the loss of SimCLR: of the features of two views of every sample, each picks its counterpart among all
// others of both views. With z the 2B normalized features of all ranks and i' the counterpart of i:
//
//   L = 1/2B sum_i (log sum_(j != i) exp(z_i.z_j / temperature)  -  z_i.z_i' / temperature)
//
// Each rank computes the rows of its own features; everybody's features travel once (exchange.h). DirectCLR is this
// loss of slice(first, 1, 0, d0) and slice(second, 1, 0, d0).
#include "losses/exchange.h"

namespace weft {

struct NtXentOptions {
  double temperature = 0.5;
  Exchange exchange = {};
  Var negatives = {};  // more of them, normalized and equal on all ranks, such as those of a MemoryBank
};

// This rank's share, of features (b, d) that need not be normalized.
Var nt_xent(const Var& first, const Var& second, const NtXentOptions& options, Communicator& comm,
            Site caller = Site::here());

}  // namespace weft
