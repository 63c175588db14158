// SPDX-License-Identifier: Apache-2.0
#pragma once
// The state of a group in a job's memory, and the inline parts of SharedMemory that work on it.
#include <algorithm>

#include "weft/collectives/transports/shared/shared_memory.h"

namespace weft {

struct SharedMemory::Slot {
  static constexpr size_t capacity = 48;
  std::atomic<uint64_t> filled{0};  // one more than the last step that it was filled for
  uint64_t fingerprint = 0;
  alignas(16) std::byte bytes[capacity];
};

// What a rank contributes to a collective that it has started.
struct alignas(64) SharedMemory::PendingSlot {
  static constexpr size_t count = max_started;  // per rank
  std::atomic<uint64_t> filled{0};              // one more than the number of the last collective it was filled for
  std::atomic<uint64_t> reads{0};               // in total: every rank reads once per collective
  uint64_t fingerprint = 0;
  Offset bytes = 0;
  Call call;
};

// Staging memory of a rank for every other step. It grows at the beginning of such a step, when no rank reads it.
struct SharedMemory::Stage {
  Offset place = 0;
  uint64_t bytes = 0;
};

struct alignas(64) SharedMemory::RankSlots {
  Slot slots[2];
  uint64_t steps = 0, calls = 0, started = 0;  // totals, which only the owner reads and writes
  alignas(64) Stage staged[2], folded[2];      // for others to read: the owner's bytes, and the slices it has folded
};

// What a slot holds when a rank's bytes do not fit into it: whether and where others can read them.
struct SharedMemory::BufferOffsets {
  bool in_place, result_in_place;
  Offset bytes, result;
};

// A message is followed by its bytes. Sending the next message sets `next`; receiving the next message sets `consumed`,
// and then the sender may reuse this one's memory.
struct alignas(64) SharedMemory::Message {
  std::atomic<Offset> next{0};
  std::atomic<bool> consumed{false};
  uint64_t size = 0;
  Call call;
};

struct alignas(64) SharedMemory::Channel {
  Message start;
  Offset last_sent = 0;  // used by the sender only
  uint64_t sent = 0;
  alignas(64) Offset last_received = 0;  // used by the receiver only
  uint64_t received = 0;
};

struct SharedMemory::GroupState {
  GroupMemory memory;
  int32_t group = 0, size = 0;
  Offset members = 0, rank_slots = 0, channels = 0;
  std::atomic<Offset> pending{0};  // the pending slots; 0 until the first collective is started
  size_t part = 0;                 // how many bytes a rank stages per step
  alignas(64) FutexEvent event;
};

inline SharedMemory::Slot& SharedMemory::slot(int r, uint64_t step) const { return rank_slots_[r].slots[step % 2]; }

inline SharedMemory::PendingSlot& SharedMemory::pending_slot(int r, uint64_t number) const {
  return job_->at<PendingSlot>(state_->pending.load(
      std::memory_order_acquire))[static_cast<size_t>(r) * PendingSlot::count + number % PendingSlot::count];
}

inline SharedMemory::Channel& SharedMemory::channel(int from, int to) const {
  return job_->at<Channel>(state_->channels)[from * size_ + to];
}

inline std::byte* SharedMemory::staged(int r, uint64_t step) const {
  return job_->at<std::byte>(rank_slots_[r].staged[step % 2].place);
}

inline std::byte* SharedMemory::folded(int r, uint64_t step) const {
  return job_->at<std::byte>(rank_slots_[r].folded[step % 2].place);
}

template <class Meanwhile>
void SharedMemory::await(const std::atomic<uint64_t>& word, uint64_t value, int owner, Meanwhile&& meanwhile) {
  const int me = members_[rank_];
  bool asleep = false;
  wait_for(
      spin_policy_, state_->event, job_->pause(members_[rank_]),
      [&] { return word.load(std::memory_order_seq_cst) >= value; },
      [&] {
        meanwhile();
        asleep = true;
        job_->begin_wait(me, owner < 0 ? -1 : members_[owner], job_->offset_of(&word), value);
        job_->check_wait(me);
      });
  if (asleep) job_->end_wait(me);
}

// What must be equal on every rank: the call, the largest size that a rank exposes, and the number of the call.
inline uint64_t agreement(const Call& call, size_t longest) {
  return call.fingerprint() + longest + call.sequence * 0x9e3779b97f4a7c15u;
}

// Makes `count` objects in the memory of a group.
template <class T> Offset make(Job& job, GroupMemory& memory, size_t count) {
  const Offset place = job.allocate(sizeof(T) * count);
  std::uninitialized_value_construct_n(job.at<T>(place), count);
  job.add_to_group(place, memory.blocks);
  return place;
}

// One call of one rank. It writes the beginning and the end of the call to the rank's log, and completes its steps.
class SharedMemory::CallScope {
 public:
  CallScope(SharedMemory& group, const Call& call, size_t longest)
      : group_(group), job_(*group.job_), slots_(group.rank_slots_[group.rank_]), call_(call) {
    call_.sequence = ++slots_.calls;
    fingerprint_ = agreement(call_, longest);
    job_.begin(me(), call_, group.state_->group, group.size_);
  }
  CallScope(const CallScope&) = delete;
  ~CallScope() {
    if (!std::uncaught_exceptions()) job_.end(me());
  }

  uint64_t step() const { return slots_.steps; }  // the current step, which is not complete
  Slot& slot() { return group_.slot(group_.rank_, slots_.steps); }
  // Marks this rank's slot as filled, waits until the slots of all ranks are, and compares the calls.
  void complete_step();

 private:
  int me() const { return group_.members_[group_.rank_]; }
  bool filled(int r) const {
    return group_.slot(r, slots_.steps - 1).filled.load(std::memory_order_seq_cst) >= slots_.steps;
  }
  void compare(int peers) const;
  [[noreturn]] void report() const;

  SharedMemory& group_;
  Job& job_;
  RankSlots& slots_;
  Call call_;
  uint64_t fingerprint_;
};

}  // namespace weft
