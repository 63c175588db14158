// SPDX-License-Identifier: Apache-2.0
#pragma once
// Gradients that are bit-identical however a batch is divided among ranks. The batch is cut into blocks of samples that
// do not depend on the number of ranks. Each rank runs one backward per block, and the gradients of all blocks are
// added exactly (engine/ops/exact.h):
//
//   ExactGradients blocks(parameters, comm);
//   ...
//   for each block of this rank:  tape.backward(loss, blocks.gradients());
//   blocks.hand_over(training.gradients());  // of a DataParallel
//   training.step(rate);
//
// A computation that spans blocks must be the same on every rank. For example, each rank computes a contrastive loss
// from the gathered features (all_gather_equal), as one process would. Memory and traffic per step are 32 bytes for
// each element. If a block's gradient has an element of 2^24 or more, the sum becomes NaN.
#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

class ExactGradients {
 public:
  ExactGradients(std::vector<Parameter*> parameters, Communicator& comm);
  ExactGradients(const ExactGradients&) = delete;
  ExactGradients& operator=(const ExactGradients&) = delete;

  // The destination of one block's backward. When backward ends, the gradients have been added to the sum.
  Gradients& gradients() { return block_; }
  // Adds the sum over all blocks of all ranks to `to`, on the first rank only, since `to` is summed over ranks later.
  void hand_over(Gradients& to, Site site = Site::here());

 private:
  void take();

  const std::vector<Parameter*> parameters_;
  Communicator& comm_;
  Gradients block_;
  std::vector<int64_t> begins_;  // of each parameter among the elements of all, then the end of the last
  Tensor sums_;                  // the exact parts of all elements
  std::vector<double> present_;  // by parameter: 1 if a block of this rank had a gradient for it
};

}  // namespace weft
