// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/shared/group_state.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <numeric>

namespace weft {
namespace {

// A part of each of a few ranks fits into the second-level cache. Threads stage only tensors so small that copying them
// costs less than a second step.
constexpr size_t part_of_processes = size_t{256} << 10, part_of_threads = size_t{16} << 10;
constexpr size_t min_staged = 4096;

}  // namespace

Offset SharedMemory::new_group_state(Job& job, const std::vector<int>& members, AddressSpace address_space,
                                     int holders) {
  const size_t n = members.size();
  const Offset place = job.allocate(sizeof(GroupState));
  GroupState& state = *new (job.at<void>(place)) GroupState;
  state.group = job.new_group();
  state.memory.group = state.group;
  state.memory.holders = holders;
  job.add_to_group(place, state.memory.blocks);
  state.size = static_cast<int32_t>(n);
  state.part = address_space == AddressSpace::one_process ? part_of_threads : part_of_processes;
  state.members = make<int32_t>(job, state.memory, n);
  state.rank_slots = make<RankSlots>(job, state.memory, n);
  state.channels = make<Channel>(job, state.memory, n * n);
  std::copy(members.begin(), members.end(), job.at<int32_t>(state.members));
  for (size_t i = 0; i < n * n; ++i) {
    Channel& channel = job.at<Channel>(state.channels)[i];
    channel.last_sent = channel.last_received = job.offset_of(&channel.start);
  }
  return place;
}

// Several ranks may allocate the slots when they start the group's first collective. The group uses those of the first.
void SharedMemory::allocate_pending_slots() {
  const size_t count = PendingSlot::count * static_cast<size_t>(size_);
  const Offset mine = job_->allocate(sizeof(PendingSlot) * count);
  std::uninitialized_value_construct_n(job_->at<PendingSlot>(mine), count);
  Offset none = 0;
  if (state_->pending.compare_exchange_strong(none, mine))
    job_->add_to_group(mine, state_->memory.blocks);
  else
    job_->give(mine);
}

std::byte* SharedMemory::grow(Stage& stage, size_t bytes) {
  if (stage.bytes < bytes) [[unlikely]] {
    if (stage.bytes) arena_->give(stage.place, stage.bytes);
    stage = {};
    const size_t capacity = std::bit_ceil(std::max(bytes, min_staged));
    stage = {arena_->take(capacity), capacity};
  }
  return job_->at<std::byte>(stage.place);
}

SharedMemory::SharedMemory(std::shared_ptr<Job> job, int rank, AddressSpace address_space, Offset state)
    : job_(std::move(job)),
      state_(job_->at<GroupState>(state)),
      rank_slots_(job_->at<RankSlots>(state_->rank_slots)),
      members_(job_->at<int32_t>(state_->members)),
      rank_(rank),
      size_(state_->size),
      part_(state_->part),
      address_space_(address_space),
      spin_policy_(job_->spin_policy()),
      arena_(std::make_shared<SharedArena>(job_, state_->memory)),
      inputs_(static_cast<size_t>(size_)),
      results_(inputs_),
      peers_(inputs_),
      in_flight_(static_cast<size_t>(size_)),
      exposed_(PendingSlot::count),
      first_exposed_(rank_slots_[rank_].started) {}

void SharedMemory::lay_out(Job& job, AddressSpace address_space) {
  std::vector<int> all_ranks(static_cast<size_t>(job.ranks()));
  std::iota(all_ranks.begin(), all_ranks.end(), 0);
  job.set_world(new_group_state(job, all_ranks, address_space, 0));
}

std::unique_ptr<SharedMemory> SharedMemory::connect(std::shared_ptr<Job> job, int rank, AddressSpace address_space) {
  const Offset state = job->world();
  return std::unique_ptr<SharedMemory>(new SharedMemory(std::move(job), rank, address_space, state));
}

GlobalRank SharedMemory::global(GroupRank rank) const {
  require(rank.value >= 0 && rank.value < size_, "rank ", rank, " in a group of ", size_);
  return {members_[rank.value]};
}

std::string SharedMemory::description() const {
  if (job_->ranks() == 1) return "self (1 rank)";
  return std::string(address_space_ == AddressSpace::one_process ? "threads" : "shared memory") + " (" + text(size_) +
         " ranks)";
}

void SharedMemory::CallScope::complete_step() {
  Slot& mine = slot();
  mine.fingerprint = fingerprint_;
  mine.filled.store(++slots_.steps, std::memory_order_seq_cst);
  const int n = group_.size_;
  int arrived = 0;
  const auto all = [&] {
    while (arrived < n && filled(arrived)) ++arrived;
    return arrived == n;
  };
  FutexEvent& event = group_.state_->event;
  if (all()) {
    if (event.has_sleepers()) event.wake_all();  // the last rank to arrive wakes those that have gone to sleep
    return compare(n);
  }
  bool asleep = false;
  wait_for(group_.spin_policy_, event, job_.pause(me()), all, [&] {
    compare(n);
    asleep = true;
    Slot& awaited = group_.slot(arrived, slots_.steps - 1);
    job_.begin_wait(me(), group_.members_[arrived], job_.offset_of(&awaited.filled), slots_.steps);
    job_.check_wait(me());
  });
  if (asleep) job_.end_wait(me());
  compare(n);
}

void SharedMemory::CallScope::compare(int peers) const {
  for (int r = 0; r < peers; ++r)
    if (filled(r) && group_.slot(r, slots_.steps - 1).fingerprint != fingerprint_) [[unlikely]]
      report();
}

// The other ranks cannot continue either, so the last calls in their logs are the calls that differ.
void SharedMemory::CallScope::report() const {
  std::string calls;
  for (int r = 0; r < group_.size_; ++r)
    if (filled(r)) calls += "\n  rank " + text(group_.members_[r]) + " is in " + job_.doing(group_.members_[r]);
  job_.fail(me(),
            Fault(exit_codes::mismatch, "collective mismatch: the ranks of a group are in different calls" + calls));
}

}  // namespace weft
