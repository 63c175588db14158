#pragma once
// What NT-Xent and DCL compare: the features of two views of every sample, each with those of both views of all samples
// of all ranks.
#include "losses/all_scores.h"
#include "losses/division.h"

namespace weft {

class TwoViews {
 public:
  // Features are (b, d) and need not be normalized.
  TwoViews(const Var& first, const Var& second, const Exchange& exchange, Communicator& comm, Site site = Site::here());

  const Var first, second;  // normalized
  const Division division;  // of samples
  const Var all;            // this rank's features of both views, (2 b, d)

  // Of every feature, over all others of all ranks: without its counterpart, or with it for the target.
  enum class Counterpart : uint8_t { without, with };
  AllKeys::LogSumExps log_sum_exp(const Var& scale, Counterpart counterpart) const;

 private:
  const AllKeys keys_;  // rank by rank; of each rank the first views before the second
};

}  // namespace weft
