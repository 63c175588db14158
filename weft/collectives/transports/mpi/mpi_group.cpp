// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/mpi/mpi_group.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

#include "weft/engine/kernels/backend.h"

namespace weft {

void poll(Job& job, int rank_on_node, const std::function<bool()>& done) {
  for (int i = 0, spins = job.spin_policy().spins; i < spins; ++i)
    if (done()) return;
  for (int i = 0; i < 200; ++i, let_others_run())
    if (done()) return;
  job.begin_wait(rank_on_node, -1, 0, 0);
  for (; !done(); job.check_wait(rank_on_node)) std::this_thread::sleep_for(std::chrono::microseconds(20));
  job.end_wait(rank_on_node);
}

void finish(Job& job, int rank_on_node, MPI_Request& request) {
  poll(job, rank_on_node, [&] {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
}

// Another rank may wait to be told a call that this one has started, if it is not the same.
void MpiGroup::wait_until(const std::function<bool()>& done) {
  int tries = 0;
  poll(*state_->job, state_->rank_on_node, [&] {
    if (++tries % 256 == 0) state_->outbox->go_on();
    return done();
  });
}

void MpiGroup::finish(MPI_Request& request) {
  wait_until([&] {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
}

MpiGroup::State::State(MPI_Comm comm, std::shared_ptr<Job> job, int rank_on_node, std::shared_ptr<Outbox> outbox,
                       int number)
    : comm(comm), job(std::move(job)), rank_on_node(rank_on_node), outbox(std::move(outbox)), number(number) {
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  std::vector<int> group_ranks(static_cast<size_t>(size));
  std::iota(group_ranks.begin(), group_ranks.end(), 0);
  members = group_ranks;
  MPI_Group group, world;
  MPI_Comm_group(comm, &group);
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_translate_ranks(group, size, group_ranks.data(), world, members.data());
  MPI_Group_free(&group);
  MPI_Group_free(&world);
}

// Ranks destroy a group at different times. Freeing a communicator is a collective, but "normally implemented to be
// local" (MPI 4.0, 7.4.3), as it is in MPICH and in Open MPI. Messages that are being sent still arrive.
MpiGroup::State::~State() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Comm_free(&comm);
}

GlobalRank MpiGroup::global(GroupRank rank) const {
  require(rank.value >= 0 && rank.value < size(), "rank ", rank, " in a group of ", size());
  return {state_->members[static_cast<size_t>(rank.value)]};
}

std::string MpiGroup::description() const { return "mpi (" + text(size()) + " ranks)"; }

void MpiGroup::exchange(const Call& requested, Bytes mine, size_t longest, Ranges ranges, Read read) {
  Call call = requested;
  call.sequence = ++state_->calls;
  begin(call);
  Agreement agreement(*this, call, false, mine, longest);
  const std::vector<size_t> sizes = agreement.sizes();
  if (longest <= few_bytes) {
    read_announced(agreement, longest, ranges, read);
  } else if (ranges.all()) {
    expose_all(mine, sizes, longest, read);
  } else {
    // Each rank goes on as long as it has anything left to send or to receive, which others need not know.
    const size_t received = ranges.longest_of_peers(), part = part_bytes();
    Swap* next = &begin_swap(0, mine, ranges, 0, part);
    for (size_t at = 0; at < ranges.longest(); at += part) {
      Swap& swap = *next;
      next = &begin_swap(at / part + 1, mine, ranges, at + part, part);
      finish(swap);
      if (at < received) read({0, std::min(part, received - at), swap.peers, swap.begins});
    }
  }
  end();
}

void MpiGroup::read_announced(const Agreement& agreement, size_t longest, const Ranges& ranges, Read read) {
  const auto n = static_cast<size_t>(size());
  peers_.resize(n), begins_.assign(n, 0);
  for (size_t r = 0; r < n; ++r) {
    if (!ranges.all()) begins_[r] = ranges.of_peers[r].first;
    peers_[r] = agreement.bytes_of(r) + begins_[r];
  }
  const size_t received = ranges.all() ? longest : ranges.longest_of_peers();
  if (received > 0) read({0, received, peers_, begins_});
}

void MpiGroup::expose_all(Bytes mine, std::span<const size_t> sizes, size_t longest, Read read) {
  const size_t n = sizes.size(), part = std::min(part_bytes(), longest);
  staging_.resize(std::max(staging_.size(), n * part));
  std::vector<int> counts(n), places(n);
  peers_.resize(n);
  for (size_t first = 0; first < longest; first += part) {
    for (size_t r = 0; r < n; ++r) {
      counts[r] = static_cast<int>(std::min(part, sizes[r] - std::min<size_t>(first, sizes[r])));
      places[r] = r ? places[r - 1] + counts[r - 1] : 0;
      peers_[r] = staging_.data() + places[r];
    }
    MPI_Request request;
    MPI_Iallgatherv(mine.data() + std::min(first, mine.size()), counts[static_cast<size_t>(rank())], MPI_BYTE,
                    staging_.data(), counts.data(), places.data(), MPI_BYTE, state_->comm, &request);
    finish(request);
    read({first, std::min(first + part, longest), peers_});
  }
}

MpiGroup::Swap& MpiGroup::begin_swap(size_t number, Bytes mine, const Ranges& ranges, size_t skipped, size_t part) {
  const auto n = static_cast<size_t>(size()), me = static_cast<size_t>(rank());
  Swap& swap = swaps_[number % swaps_.size()];
  swap.peers.resize(n), swap.begins.resize(n);
  size_t total = 0;
  for (size_t r = 0; r < n; ++r)
    if (r != me) total += ranges.of_peers[r].piece(skipped, part).size();
  swap.staging.resize(std::max(swap.staging.size(), total));
  std::byte* place = swap.staging.data();
  for (size_t r = 0; r < n; ++r) {
    const Range in = ranges.of_peers[r].piece(skipped, part), out = ranges.by_peers[r].piece(skipped, part);
    swap.begins[r] = in.first;
    swap.peers[r] = r == me ? mine.data() + in.first : place;
    if (r == me) continue;
    if (in.size())
      MPI_Irecv(place, static_cast<int>(in.size()), MPI_BYTE, static_cast<int>(r), swap_tag, state_->comm,
                &swap.requests.emplace_back());
    if (out.size())
      MPI_Isend(mine.data() + out.first, static_cast<int>(out.size()), MPI_BYTE, static_cast<int>(r), swap_tag,
                state_->comm, &swap.requests.emplace_back());
    place += in.size();
  }
  return swap;
}

void MpiGroup::finish(Swap& swap) {
  for (MPI_Request& request : swap.requests) finish(request);
  swap.requests.clear();
}

std::unique_ptr<Transport> MpiGroup::split(int color, int key, Site site) {
  struct Choice {
    int32_t color, key, groups;
  };
  const Choice mine{color, key, state_->outbox->groups};
  int groups = 0;
  expose(describe(Verb::split, site), std::as_bytes(std::span(&mine, 1)), sizeof mine, [&](const Part& part) {
    for (const std::byte* peer : part.peers) {
      Choice theirs;
      std::memcpy(&theirs, peer, sizeof theirs);
      groups = std::max(groups, theirs.groups);
    }
  });
  state_->outbox->groups = groups + 1;
  MPI_Comm comm;  // MPI has no form of this to poll; all ranks have just arrived, so the wait is short
  MPI_Comm_split(state_->comm, color < 0 ? MPI_UNDEFINED : color, key, &comm);
  if (color < 0) return nullptr;
  return std::make_unique<MpiGroup>(
      std::make_shared<State>(comm, state_->job, state_->rank_on_node, state_->outbox, groups));
}

std::string MpiGroup::busy_with(const std::string& what) { return state_->job->busy_with(state_->rank_on_node, what); }

void MpiGroup::finalize(Site site) {
  expose(describe(Verb::finalize, site), {}, 0, [](const Part&) {});
  wait_until([&] {
    state_->outbox->release_delivered();
    return state_->outbox->messages.empty();
  });
}

StorageHandle MpiGroup::allocate_shown(size_t bytes) { return StorageHandle(backend(Device::cpu).allocate(bytes)); }

}  // namespace weft
