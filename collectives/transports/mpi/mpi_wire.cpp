// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/mpi/mpi_wire.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace weft {

// Ranks destroy a group at different times. Freeing a communicator is a collective, but "normally implemented to be
// local" (MPI 4.0, 7.4.3), as it is in MPICH and in Open MPI. Messages that are being sent still arrive.
std::shared_ptr<const MPI_Comm> Wire::hold(MPI_Comm comm) {
  return {new MPI_Comm(comm), [](const MPI_Comm* held) {
            int finalized = 0;
            MPI_Finalized(&finalized);
            MPI_Comm its = *held;
            if (!finalized) MPI_Comm_free(&its);
            delete held;
          }};
}

Wire::Wire(std::shared_ptr<const MPI_Comm> comm, int threads, std::vector<Place> places, int rank)
    : comm_(std::move(comm)), threads_(threads), places_(std::move(places)), rank_(rank) {}

std::vector<int> Wire::global_ranks() const {
  std::vector<int> processes, global(places_.size());
  for (const Place& place : places_) processes.push_back(place.process);
  MPI_Group group, world;
  MPI_Comm_group(*comm_, &group);
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_translate_ranks(group, size(), processes.data(), world, global.data());
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  for (size_t r = 0; r < global.size(); ++r) global[r] = global[r] * threads_ + places_[r].thread;
  return global;
}

int Wire::most_threads() {
  void* value = nullptr;
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found);
  const double last = found ? *static_cast<int*>(value) : tags() - 1;
  return static_cast<int>(std::sqrt((last + 1) / tags()));
}

void Wire::send(const std::byte* bytes, size_t count, int to, int tag, Requests& requests) const {
  for (size_t at = 0; at < count; at += piece)
    MPI_Isend(bytes + at, static_cast<int>(std::min(piece, count - at)), MPI_BYTE, place(to).process,
              tag_of(tag, place(rank_), place(to)), *comm_, &requests.emplace_back());
}

void Wire::receive(std::byte* bytes, size_t count, int from, int tag, Requests& requests) const {
  for (size_t at = 0; at < count; at += piece)
    MPI_Irecv(bytes + at, static_cast<int>(std::min(piece, count - at)), MPI_BYTE, place(from).process,
              tag_of(tag, place(from), place(rank_)), *comm_, &requests.emplace_back());
}

bool Wire::has_arrived(int from, int tag, MPI_Message& message, MPI_Status& status) const {
  int arrived = 0;
  MPI_Improbe(place(from).process, tag_of(tag, place(from), place(rank_)), *comm_, &arrived, &message, &status);
  return arrived != 0;
}

void Wire::gather(const std::byte* mine, std::byte* all, std::span<const int> counts, std::span<const int> places,
                  int tag, Requests& requests) const {
  const auto me = static_cast<size_t>(rank_);
  const bool in_place = mine == all + places[me];
  if (threads_ == 1) {
    MPI_Iallgatherv(in_place ? MPI_IN_PLACE : mine, counts[me], MPI_BYTE, all, counts.data(), places.data(), MPI_BYTE,
                    *comm_, &requests.emplace_back());
    return;
  }
  if (!in_place) std::copy_n(mine, counts[me], all + places[me]);
  for (int r = 0; r < size(); ++r) {
    const auto i = static_cast<size_t>(r);
    if (r == rank_) continue;
    if (counts[i] > 0) receive(all + places[i], static_cast<size_t>(counts[i]), r, tag, requests);
    if (counts[me] > 0) send(mine, static_cast<size_t>(counts[me]), r, tag, requests);
  }
}

void Wire::gather(const std::byte* mine, std::byte* all, int count, int tag, Requests& requests) const {
  if (threads_ == 1) {
    MPI_Iallgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, *comm_, &requests.emplace_back());
    return;
  }
  const std::vector<int> counts(places_.size(), count);
  std::vector<int> places(counts);
  std::exclusive_scan(counts.begin(), counts.end(), places.begin(), 0);
  gather(mine, all, counts, places, tag, requests);
}

}  // namespace weft
