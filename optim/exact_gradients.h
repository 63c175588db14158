#pragma once
// Gradients whose bits are the same however a batch is divided among ranks. The batch is cut into blocks of samples
// that do not depend on the number of ranks, each rank walks back through each of its blocks by itself, and the blocks'
// gradients are added exactly (engine/exact.h):
//
//   ExactGradients blocks(parameters, comm);
//   ...
//   for each block of this rank:  tape.backward(loss, blocks.gradients());
//   blocks.hand_over(training.gradients());  // of a DataParallel
//   training.step(rate);
//
// Whatever else spans blocks has to be computed alike on every rank: a contrastive loss, for one, by each of them of
// all features (all_gather_equal), as one process would. Memory, and what travels in a step: 32 bytes for each element.
// A block's gradient of 2^24 or more becomes NaN.
#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

class ExactGradients {
 public:
  ExactGradients(std::vector<Parameter*> parameters, Communicator& comm);
  ExactGradients(const ExactGradients&) = delete;
  ExactGradients& operator=(const ExactGradients&) = delete;

  // Where backward is to put the gradients of one block; when it ends they have been taken.
  Gradients& gradients() { return block_; }
  // Adds the sum over all blocks of all ranks to `to`, on the first rank only: what is there is summed over ranks next.
  void hand_over(Gradients& to, Site site = Site::here());

 private:
  Tensor parts(size_t parameter);
  Tensor count(size_t parameter);  // of the blocks it took part in
  void take();

  const std::vector<Parameter*> parameters_;
  Communicator& comm_;
  Gradients block_;
  std::vector<int64_t> begins_;  // of each parameter's parts, and after the last
  Tensor sums_;                  // parts of all parameters, then their counts
};

}  // namespace weft
