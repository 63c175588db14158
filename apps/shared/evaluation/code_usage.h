// SPDX-License-Identifier: Apache-2.0
#pragma once
// How often each code of a quantizer is used, by the tokens of all ranks.
#include "weft/collectives/communicator.h"

namespace weft {

class CodeUsage {
 public:
  // For a quantizer that gives each token `parts` indices, along the last axis. Each part has its own `codes` codes.
  CodeUsage(int64_t parts, int64_t codes);

  void add(const Tensor& indices);                          // indices of this rank's tokens
  void over(Communicator& comm, Site site = Site::here());  // sums the counts over ranks; to be called once

  std::vector<double> most_used_first() const;  // tokens per code, over all parts
  double perplexity() const;                    // exp(entropy of the codes of a part), a geometric mean over parts
  int64_t dead() const;                         // codes that no token uses

 private:
  size_t parts_, codes_;
  std::vector<double> counts_;
};

}  // namespace weft
