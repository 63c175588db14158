#pragma once
// Losses of a contrastive batch, forward and backward to the features, as P6 measures them. torch_steps.py has the same
// in PyTorch.
#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft::bench {

class ContrastiveBatch {
 public:
  static constexpr int64_t width = 128;

  ContrastiveBatch(int64_t pairs, Communicator& comm);  // of this rank

  void clip();
  void siglip();
  void nt_xent();

 private:
  template <class Loss> void step(const Loss& loss);

  Communicator& comm_;
  const Tensor first_, second_;  // unit rows
  const Tensor scale_, bias_;
};

}  // namespace weft::bench
