// SPDX-License-Identifier: Apache-2.0
#pragma once
// The cost of a rank's calls to its groups, by verb. It is always measured, because two readings of the clock cost
// little beside a collective.
//
//   Traffic traffic;
//   Communicator comm(counted(connect(session), traffic));  and all groups that are split from it
//   ...
//   traffic[Verb::all_reduce].calls
//
// Bytes are those of the rank's own inputs, no matter how they are moved, so their sum over the ranks is the same on
// every transport. A rank that only receives has none. Seconds are those that the rank spends in the call, waiting
// included; for a collective in two halves they are those of the halves, without the time between.
#include <array>
#include <memory>
#include <vector>

#include "weft/collectives/checks/timeline.h"

namespace weft {

class Traffic {
 public:
  struct Count {
    int64_t calls = 0, bytes = 0;
    double seconds = 0;
    int64_t small_calls = 0;  // of at most Transport::small_call
    Count& operator+=(const Count& other);
    Count operator-(const Count& other) const;
  };
  static constexpr size_t verbs = std::size(all_verbs);

  Count& operator[](Verb verb) { return counts_[static_cast<size_t>(verb)]; }
  const Count& operator[](Verb verb) const { return counts_[static_cast<size_t>(verb)]; }
  Count total() const;
  Traffic since(const Traffic& before) const;

 private:
  std::array<Count, verbs> counts_;
};

// The same transport, counted, and with each call on a timeline if there is one. Both belong to one rank and must
// outlive what is returned and split from it.
std::unique_ptr<Transport> counted(std::unique_ptr<Transport> transport, Traffic& traffic,
                                   Timeline* timeline = nullptr);

// The traffic of all ranks, in rank order, on rank 0; nothing on other ranks.
std::vector<Traffic> gather_traffic(const Traffic& mine, Communicator& comm, Site site = Site::here());

}  // namespace weft
