// SPDX-License-Identifier: Apache-2.0
#pragma once
// The input of NT-Xent and DCL: the normalized features of two views of every sample. Each feature is compared with
// those of both views of all samples on all ranks.
#include "weft/losses/common/division.h"
#include "weft/losses/contrastive/all_keys.h"

namespace weft {

class TwoViews {
 public:
  // Features are (b, d) and need not be normalized.
  TwoViews(const Var& first, const Var& second, const KeySchedule& schedule, Communicator& comm,
           Site site = Site::here());

  const Var all;            // this rank's normalized features of both views, (2 b, d)
  const Division division;  // of the samples
  Var first() const;
  Var second() const;

  // For every feature, over all other features of all ranks: without its counterpart, or with it as the target.
  enum class Counterpart : uint8_t { without, with };
  AllKeys::LogSumExps log_sum_exp(const Var& scale, Counterpart counterpart) const;

 private:
  const AllKeys keys_;  // in rank order; on each rank all first views precede all second views
};

}  // namespace weft
