#pragma once
// What a rank's calls to its groups cost it, by verb: always on, since two readings of the clock are little beside a
// meeting of ranks.
//
//   Traffic traffic;
//   Communicator comm(counted(connect(session), traffic));  and all groups that are split from it
//   ...
//   traffic[Verb::all_reduce].calls
//
// Bytes are those of the values that this rank brings in, whatever way they take: added over the ranks they are the
// same on every transport. A rank that only takes, such as a receiver, brings none. Seconds are those that the rank
// spends in the call, waiting included; a collective in two halves costs what its halves do, and not what lies between.
#include <array>
#include <memory>
#include <vector>

#include "collectives/communicator.h"

namespace weft {

class Traffic {
 public:
  struct Count {
    int64_t calls = 0, bytes = 0;
    double seconds = 0;
    Count& operator+=(const Count& other);
    Count operator-(const Count& other) const;
  };
  static constexpr size_t verbs = static_cast<size_t>(Verb::finalize) + 1;

  Count& operator[](Verb verb) { return counts_[static_cast<size_t>(verb)]; }
  const Count& operator[](Verb verb) const { return counts_[static_cast<size_t>(verb)]; }
  Count total() const;
  Traffic since(const Traffic& before) const;

 private:
  std::array<Count, verbs> counts_;
};

// The same transport, counted. `traffic` belongs to one rank and must outlive what is returned and split from it.
std::unique_ptr<Transport> counted(std::unique_ptr<Transport> transport, Traffic& traffic);

// Every rank's, in rank order, on rank 0; nothing elsewhere.
std::vector<Traffic> gather_traffic(const Traffic& mine, Communicator& comm, Site site = Site::here());

}  // namespace weft
