// SPDX-License-Identifier: Apache-2.0
#pragma once
// The number and the sum of each code's tokens, bit-identical however the tokens are divided among calls and ranks
// (engine/ops/exact.h). A code may have up to 2^20 tokens with features below 2^24; more is an Error on every
// rank.
#include "weft/collectives/communicator.h"
#include "weft/engine/kernels/backend.h"

namespace weft {

class CodeSums {
 public:
  CodeSums(int64_t codes, int64_t dim, Device device);

  void add(const Tensor& tokens, const Tensor& indices);

  struct Total {
    Tensor counts;  // (codes), of the tokens' type
    Tensor sums;    // (codes, dim)
    int64_t tokens;
    std::shared_ptr<HostCopy> sum;  // of the sums
    void must_be_exact() const;     // Error if they are not; it waits for the copy
  };
  // The totals over all ranks, once, by one all_reduce of 33 bytes per number in the codebook, and one of a number.
  Total over(Communicator& comm, DType dtype, Site site = Site::here());

 private:
  int64_t codes_;
  Shape parts_;         // of the sums
  Tensor memory_;       // the exact parts of the sums, then the counts
  int64_t tokens_ = 0;  // of this rank
};

}  // namespace weft
