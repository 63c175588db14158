// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/mpi/mpi_group.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <thread>

#include "weft/collectives/transports/job/last_words.h"
#include "weft/collectives/transports/mpi/mpi.h"
#include "weft/collectives/transports/mpi/mpi_progress.h"
#include "weft/engine/kernels/backend.h"

namespace weft {

void poll(Job& job, int rank_on_node, const std::function<bool()>& done) {
  // Nodes may be containers that share cores, so the rank that this one waits for may need its core. To yield after
  // each poll would make short messages a tenth slower.
  for (int i = 1, polls = job.spin_policy().spins + 200; i <= polls; ++i) {
    if (done()) return;
    if (i % 4 == 0) let_others_run();
  }
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
    if (++tries % 256 == 0) state_->outbox->release_delivered(), unfinished()->go_on();
    return done();
  });
}

void MpiGroup::finish(Wire::Requests& requests) {
  wait_until([&] {
    int done = 0;
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    return done != 0;
  });
  requests.clear();
}

GlobalRank MpiGroup::global(GroupRank rank) const {
  require(rank.value >= 0 && rank.value < size(), "rank ", rank, " in a group of ", size());
  return {state_->members[static_cast<size_t>(rank.value)]};
}

std::string MpiGroup::description() const { return "mpi (" + text(size()) + (size() == 1 ? " rank)" : " ranks)"); }

MessageSteps MpiGroup::steps_of(Verb verb, std::span<const size_t> sizes, size_t longest, const Ranges& ranges) const {
  if (ranges.all())
    return exposing_steps(taker(), sizes, way_of(Movement::gathering, longest * sizes.size()) == Way::by_mpi);
  if (verb == Verb::broadcast && way_of(Movement::one_to_all, longest) == Way::in_slices)
    return broadcast_steps(taker(), ranges);
  return direct_steps(taker(), ranges);
}

void MpiGroup::exchange(const Call& requested, Bytes mine, size_t longest, Ranges ranges, Read read) {
  Call call = requested;
  call.sequence = ++state_->calls;
  begin(call);
  Agreement agreement(*this, call, false, mine, longest);
  const std::vector<size_t> sizes = agreement.sizes();
  if (longest <= small_call)
    read_announced(agreement, longest, ranges, read);
  else
    carry_out(steps_of(call.verb, sizes, longest, ranges), mine, {}, &read);
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

void MpiGroup::carry_out(MessageSteps steps, Bytes mine, std::span<std::byte> result, const Read* read) {
  board_.resize(std::max(board_.size(), steps.board));
  Progress(*this, std::move(steps), {mine.data(), result.data(), board_.data()}, swap_tag).complete(read);
}

// What a rank chooses in a split.
struct MpiGroup::Choice {
  int32_t color, key, groups;
};

std::unique_ptr<Transport> MpiGroup::split(int color, int key, Site site) {
  const Choice mine{color, key, state_->outbox->groups};
  std::vector<Choice> all(static_cast<size_t>(size()));
  const Call call = describe(Verb::split, site);
  expose(call, std::as_bytes(std::span(&mine, 1)), sizeof mine, [&](const Part& part) {
    for (size_t r = 0; r < all.size(); ++r) std::memcpy(&all[r], part.peers[r], sizeof mine);
  });
  int groups = 0;
  for (const Choice& theirs : all) groups = std::max(groups, theirs.groups);
  state_->outbox->groups = groups + 1;
  std::shared_ptr<const MPI_Comm> comm = comm_of(call, all);
  if (color < 0) return nullptr;
  const std::vector<int> members = members_of(color, all), processes = processes_of(members);
  std::vector<Wire::Place> places;
  for (const int member : members) {
    const Wire::Place old = state_->wire.place(member);
    const auto process = std::find(processes.begin(), processes.end(), old.process);
    places.push_back({static_cast<int>(process - processes.begin()), old.thread});
  }
  const auto me = std::find(members.begin(), members.end(), rank());
  return std::make_unique<MpiGroup>(std::make_shared<State>(
      Wire(std::move(comm), state_->wire.threads(), std::move(places), static_cast<int>(me - members.begin())),
      state_->job, state_->rank_on_node, state_->outbox, state_->link, groups));
}

std::vector<int> MpiGroup::members_of(int color, std::span<const Choice> all) const {
  std::vector<int> members;
  for (int r = 0; r < size(); ++r)
    if (all[static_cast<size_t>(r)].color == color) members.push_back(r);
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return all[static_cast<size_t>(a)].key < all[static_cast<size_t>(b)].key; });
  return members;
}

std::vector<int> MpiGroup::processes_of(std::span<const int> ranks) const {
  std::vector<int> processes;
  for (const int r : ranks)
    if (const int process = state_->wire.place(r).process;
        std::find(processes.begin(), processes.end(), process) == processes.end())
      processes.push_back(process);
  return processes;
}

// The communicator of the ranks with this rank's color, which has their processes. MPI makes one per process at a time,
// so the first rank of each process makes those of all colors there, and the other threads take theirs from it. MPI has
// no form of this to poll.
std::shared_ptr<const MPI_Comm> MpiGroup::comm_of(const Call& call, std::span<const Choice> all) {
  const Wire& wire = state_->wire;
  const int color = all[static_cast<size_t>(rank())].color, process = wire.place(rank()).process;
  int first = 0;
  while (wire.place(first).process != process) ++first;
  using Comms = std::map<int, std::shared_ptr<const MPI_Comm>>;
  Comms made;
  if (first == rank()) {
    std::set<int> colors;
    for (const Choice& choice : all)
      if (choice.color >= 0) colors.insert(choice.color);
    if (wire.threads() == 1) colors = {color};
    for (const int each : colors) {
      const std::vector<int> processes = processes_of(members_of(each, all));
      const auto place = std::find(processes.begin(), processes.end(), process);
      const bool here = each >= 0 && place != processes.end();
      MPI_Comm comm;
      const auto limit = time_limit(state_->job->deadline(), "a split (MPI_Comm_split)", abort_mpi);
      MPI_Comm_split(wire.comm(), here ? each : MPI_UNDEFINED, static_cast<int>(place - processes.begin()), &comm);
      if (here) made[each] = Wire::hold(comm);
    }
  }
  if (wire.threads() == 1) return made[color];
  const Comms* const mine = &made;
  std::shared_ptr<const MPI_Comm> taken;
  expose(call, std::as_bytes(std::span(&mine, 1)), sizeof mine, [&](const Part& part) {
    const Comms* of_first = nullptr;
    std::memcpy(&of_first, part.peers[static_cast<size_t>(first)], sizeof of_first);
    if (const auto found = of_first->find(color); found != of_first->end()) taken = found->second;
  });
  expose(call, {}, 0, [](const Part&) {});  // until all have taken theirs
  return taken;
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
