#pragma once
// How many tokens fell to each code, and their sum: the same bits however the tokens are divided among calls and ranks
// (engine/exact.h). Up to 2^20 tokens of a code with features below 2^24; more is an Error, on every rank.
#include "collectives/communicator.h"

namespace weft {

class CodeSums {
 public:
  CodeSums(int64_t codes, int64_t dim, Device device);

  void add(const Tensor& tokens, const Tensor& indices);

  struct Total {
    Tensor counts;  // (codes), of the tokens' type
    Tensor sums;    // (codes, dim)
    int64_t tokens;
  };
  // Of all ranks: one all_reduce of 33 bytes per number in the codebook.
  Total over(Communicator& comm, DType dtype, Site site = Site::here()) const;

 private:
  int64_t codes_, dim_;
  Tensor memory_;  // exact parts of the sums, then the counts
};

}  // namespace weft
