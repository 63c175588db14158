// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/mpi/mpi_link.h"

#include <algorithm>
#include <array>
#include <vector>

#include "weft/collectives/transports/mpi/mpi_wire.h"

namespace weft {
namespace {

// Two processes that send each other messages: one many bytes, the other an answer.
class Pair {
 public:
  Pair(MPI_Comm comm, const std::function<void(MPI_Request&)>& wait) : comm_(comm), wait_(wait) {
    MPI_Comm_rank(comm, &me_);
    MPI_Comm_size(comm, &size_);
  }
  bool complete() const { return (me_ ^ 1) < size_; }

  // The seconds from the first of so many messages to the answer.
  double round_trip(int messages, int bytes) {
    buffer_.resize(static_cast<size_t>(bytes));
    std::vector<MPI_Request> requests(static_cast<size_t>(messages));
    MPI_Request answered;
    char answer = 0;
    const double begin = MPI_Wtime();
    if (me_ % 2 == 0) {
      for (MPI_Request& request : requests) MPI_Isend(buffer_.data(), bytes, MPI_CHAR, me_ ^ 1, 0, comm_, &request);
      for (MPI_Request& request : requests) wait_(request);
      MPI_Irecv(&answer, 1, MPI_CHAR, me_ ^ 1, 0, comm_, &answered);
    } else {
      for (MPI_Request& request : requests) {
        MPI_Irecv(buffer_.data(), bytes, MPI_CHAR, me_ ^ 1, 0, comm_, &request);
        wait_(request);
      }
      MPI_Isend(&answer, 1, MPI_CHAR, me_ ^ 1, 0, comm_, &answered);
    }
    wait_(answered);
    return MPI_Wtime() - begin;
  }
  double fastest_round_trip(int messages, int bytes, int tries) {
    double fastest = round_trip(messages, bytes);
    while (--tries > 0) fastest = std::min(fastest, round_trip(messages, bytes));
    return fastest;
  }
  // Both measure the same, so that they go on with the same messages.
  double agreed(double seconds) {
    double theirs = 0;
    std::array<MPI_Request, 2> requests;
    MPI_Irecv(&theirs, 1, MPI_DOUBLE, me_ ^ 1, 0, comm_, &requests[0]);
    MPI_Isend(&seconds, 1, MPI_DOUBLE, me_ ^ 1, 0, comm_, &requests[1]);
    for (MPI_Request& request : requests) wait_(request);
    return std::max(seconds, theirs);
  }

 private:
  const MPI_Comm comm_;
  const std::function<void(MPI_Request&)>& wait_;
  std::vector<char> buffer_;
  int me_ = 0, size_ = 0;
};

// Latency, overhead, and the time of a byte.
std::array<double, 3> measured(Pair& pair) {
  pair.fastest_round_trip(1, 8, 2);  // connects
  const double empty = pair.fastest_round_trip(1, 8, 10);
  constexpr int most = 16;
  const double overhead = std::max(pair.fastest_round_trip(most, 8, 3) - empty, 0.0) / (most - 1);
  int pieces = 1;
  const auto seconds_of = [&] {
    return pair.agreed(pair.fastest_round_trip(pieces, static_cast<int>(Wire::piece), 3));
  };
  double seconds = seconds_of();
  for (; seconds < 4e-3 && pieces < most; seconds = seconds_of()) pieces *= 2;
  return {empty / 2, overhead, std::max(seconds - empty, seconds / 2) / (pieces * double{Wire::piece})};
}

}  // namespace

Link measured_link(MPI_Comm all, bool first_on_node, const std::function<void(MPI_Request&)>& wait) {
  MPI_Comm first;
  MPI_Comm_split(all, first_on_node ? 0 : MPI_UNDEFINED, 0, &first);
  std::array<double, 3> mine{}, slowest{};
  if (first_on_node) {
    if (Pair pair(first, wait); pair.complete()) mine = measured(pair);
    MPI_Comm_free(&first);
  }
  MPI_Request request;
  MPI_Iallreduce(mine.data(), slowest.data(), 3, MPI_DOUBLE, MPI_MAX, all, &request);
  wait(request);
  return {slowest[0], 1 / slowest[2], slowest[1]};
}

}  // namespace weft
