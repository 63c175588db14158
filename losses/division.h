#pragma once
// How the samples of a batch are divided among the ranks of a group: rank by rank, in rank order.
#include "collectives/communicator.h"

namespace weft {

struct Division {
  Rows rows;          // of each rank
  int64_t first = 0;  // the number of this rank's first sample in the whole batch
  int64_t total = 0;

  // From this rank's number of samples: one small meeting.
  Division(int64_t mine, Communicator& comm, Site site = Site::here());
  int64_t mine() const { return rows[rank_]; }

 private:
  size_t rank_;
};

}  // namespace weft
