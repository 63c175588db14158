#pragma once
// How often each code of a quantizer is used, by the tokens of all ranks.
#include "collectives/communicator.h"

namespace weft {

class CodeUsage {
 public:
  // Of a quantizer that makes `parts` indices of each token, as a last axis, each with `codes` codes of its own.
  CodeUsage(int64_t parts, int64_t codes);

  void add(const Tensor& indices);                          // of this rank's tokens
  void over(Communicator& comm, Site site = Site::here());  // from here on of all ranks' tokens; once

  std::vector<double> most_used_first() const;  // tokens of each code, of all parts
  double perplexity() const;  // how many codes of a part are in use, as if equally often: a mean over parts
  int64_t dead() const;       // codes that no token has become

 private:
  size_t parts_, codes_;
  std::vector<double> counts_;
};

}  // namespace weft
