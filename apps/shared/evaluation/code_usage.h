// SPDX-License-Identifier: Apache-2.0
#pragma once
// How often each code of a quantizer is used, by the tokens of all ranks.
#include <memory>

#include "weft/collectives/communicator.h"
#include "weft/engine/kernels/backend.h"

namespace weft {

class CodeUsage {
 public:
  // For a quantizer that gives each token `parts` indices, along the last axis. Each part has its own `codes` codes.
  CodeUsage(int64_t parts, int64_t codes);

  void add(const Tensor& indices);  // indices of this rank's tokens
  // Sums the counts over ranks; to be called once. A card's are copied to the host until they are asked for.
  void over(Communicator& comm, Site site = Site::here());

  std::vector<double> most_used_first() const;  // tokens per code, over all parts
  double perplexity() const;                    // exp(entropy of the codes of a part), a geometric mean over parts
  int64_t dead() const;                         // codes that no token uses

 private:
  std::vector<double> counts() const { return copy_ ? copy_->values().values() : counts_.values(); }

  int64_t parts_, codes_;
  Tensor counts_;                   // f64, where the indices are; set by the first ones
  std::shared_ptr<HostCopy> copy_;  // of the sums over ranks
};

}  // namespace weft
