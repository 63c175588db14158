// SPDX-License-Identifier: Apache-2.0
#pragma once
// Messages of MPI between the ranks of a group. A rank is a process, or one of the threads of a process. MPI knows only
// processes, so a message between threads has its two threads in its tag.
#include <mpi.h>

#include <memory>
#include <span>
#include <vector>

#include "weft/collectives/transport.h"

namespace weft {

class Wire {
 public:
  struct Place {
    int process, thread;  // the process's rank in the communicator
  };
  using Requests = std::vector<MPI_Request>;

  // Takes the communicator. `threads` is the number of threads of each process that may be ranks.
  static std::shared_ptr<const MPI_Comm> hold(MPI_Comm comm);
  Wire(std::shared_ptr<const MPI_Comm> comm, int threads, std::vector<Place> places, int rank);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(places_.size()); }
  int threads() const { return threads_; }
  MPI_Comm comm() const { return *comm_; }
  const Place& place(int rank) const { return places_[static_cast<size_t>(rank)]; }
  std::vector<int> global_ranks() const;

  // Tags are below tags().
  static constexpr int tags() { return 32768; }  // the last that every MPI library has is 32767
  static int most_threads();                     // of a process, for which the library's tags suffice
  // Cut to pieces of this length, which MPI libraries send at once. Of a longer message a rank first tells the
  // receiver, who asks for the bytes: both have to make calls meanwhile, and ranks that compute make few.
  static constexpr size_t piece = size_t{16} << 10;
  void send(const std::byte* bytes, size_t count, int to, int tag, Requests& requests) const;
  void receive(std::byte* bytes, size_t count, int from, int tag, Requests& requests) const;
  bool has_arrived(int from, int tag, MPI_Message& message, MPI_Status& status) const;
  // All ranks' bytes come to places[r] of `all`. `mine` may be there already.
  void gather(const std::byte* mine, std::byte* all, std::span<const int> counts, std::span<const int> places, int tag,
              Requests& requests) const;
  void gather(const std::byte* mine, std::byte* all, int count, int tag, Requests& requests) const;

 private:
  int tag_of(int tag, const Place& from, const Place& to) const {
    return tag + tags() * (from.thread * threads_ + to.thread);
  }

  std::shared_ptr<const MPI_Comm> comm_;
  int threads_;
  std::vector<Place> places_;  // of each rank
  int rank_;
};

}  // namespace weft
