// SPDX-License-Identifier: Apache-2.0
#pragma once
// The contrastive losses that P6 measures, forward and backward to the features. torch_steps.py has the same in
// PyTorch.
#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft::bench {

class ContrastiveBatch {
 public:
  static constexpr int64_t width = 128;

  ContrastiveBatch(int64_t pairs, Communicator& comm);  // `pairs` is the number on this rank

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
