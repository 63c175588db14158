// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the samples of a batch are divided among the ranks of a group. Samples are numbered across the group in rank
// order: first all samples of rank 0, then those of rank 1, and so on.
#include "weft/collectives/communicator.h"

namespace weft {

struct Division {
  Rows rows;          // the number of samples on each rank
  int64_t first = 0;  // the global number of this rank's first sample
  int64_t total = 0;  // the number of samples on all ranks

  // `mine` is this rank's number of samples. Costs one small collective.
  Division(int64_t mine, Communicator& comm, Site site = Site::here());
  int64_t mine() const { return rows[rank_]; }

 private:
  size_t rank_;
};

}  // namespace weft
