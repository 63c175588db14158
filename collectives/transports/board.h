#pragma once
// The layout of a group's board in a job's memory.
#include <algorithm>

#include "collectives/transports/shared_memory.h"

namespace weft {

struct SharedMemory::Slot {
  static constexpr size_t capacity = 48;
  std::atomic<uint64_t> filled{0};  // one more than the step it is filled for
  uint64_t fingerprint = 0;
  alignas(16) std::byte bytes[capacity];
};

// What a rank shows to a meeting that it has started.
struct alignas(64) SharedMemory::Post {
  static constexpr size_t count = most_started;  // of a seat
  std::atomic<uint64_t> posted{0};               // one more than the number of the meeting
  std::atomic<uint64_t> readings{0};             // of this post so far: a full set for each meeting it served
  uint64_t fingerprint = 0;
  Offset bytes = 0;
  Call call;
};

// Memory that a rank stages in, for every other step. It grows when that step's turn comes: then nobody reads in it.
struct SharedMemory::Stage {
  Offset place = 0;
  uint64_t bytes = 0;
};

struct alignas(64) SharedMemory::Seat {
  Slot slots[2];
  uint64_t steps = 0, calls = 0, started = 0;  // so far; the owner's
  alignas(64) Stage staged[2], folded[2];      // what others are to read: the owner's bytes, and what it has folded
};

// What a slot holds when there is more to see than fits.
struct SharedMemory::Shown {
  bool in_place, result_in_place;
  Offset bytes, result;
};

// A message is followed by its bytes. It is linked to the next one when that is sent, and has been left behind by the
// receiver when that is received: then the sender may use its memory again.
struct alignas(64) SharedMemory::Message {
  std::atomic<Offset> next{0};
  std::atomic<bool> left_behind{false};
  uint64_t size = 0;
  Call call;
};

struct alignas(64) SharedMemory::Channel {
  Message start;
  Offset sent_last = 0;  // the sender's
  uint64_t sent = 0;
  alignas(64) Offset received_last = 0;  // the receiver's
  uint64_t received = 0;
};

struct SharedMemory::Board {
  GroupMemory memory;
  int32_t group = 0, size = 0;
  Offset members = 0, seats = 0, channels = 0;
  std::atomic<Offset> posts{0};  // when the first meeting has been started
  size_t part = 0;               // what is staged at a time
  alignas(64) Bell bell;
};

inline SharedMemory::Slot& SharedMemory::slot(int r, uint64_t step) const { return seats_[r].slots[step % 2]; }

inline SharedMemory::Post& SharedMemory::post(int r, uint64_t number) const {
  return job_->at<Post>(
      board_->posts.load(std::memory_order_acquire))[static_cast<size_t>(r) * Post::count + number % Post::count];
}

inline SharedMemory::Channel& SharedMemory::channel(int from, int to) const {
  return job_->at<Channel>(board_->channels)[from * size_ + to];
}

inline std::byte* SharedMemory::staged(int r, uint64_t step) const {
  return job_->at<std::byte>(seats_[r].staged[step % 2].place);
}

inline std::byte* SharedMemory::folded(int r, uint64_t step) const {
  return job_->at<std::byte>(seats_[r].folded[step % 2].place);
}

template <class Meanwhile>
void SharedMemory::await(const std::atomic<uint64_t>& word, uint64_t value, int owner, Meanwhile&& meanwhile) {
  const int me = members_[rank_];
  bool asleep = false;
  wait_for(
      patience_, board_->bell, [&] { return word.load(std::memory_order_seq_cst) >= value; },
      [&] {
        meanwhile();
        asleep = true;
        job_->waits_for(me, owner < 0 ? -1 : members_[owner], job_->offset_of(&word), value);
        job_->still_waiting(me);
      });
  if (asleep) job_->waits_no_more(me);
}

// What makes a call the same on every rank: what it is, how much is shown, and which one of the group's calls it is.
inline uint64_t agreement(const Call& call, size_t longest) {
  return call.fingerprint() + longest + call.sequence * 0x9e3779b97f4a7c15u;
}

// So many new ones in the memory of a group.
template <class T> Offset make(Job& job, GroupMemory& memory, size_t count) {
  const Offset place = job.allocate(sizeof(T) * count);
  std::uninitialized_value_construct_n(job.at<T>(place), count);
  job.belongs(place, memory.blocks);
  return place;
}

// One call of one rank: in the log from its beginning to its end, and its steps.
class SharedMemory::Turn {
 public:
  Turn(SharedMemory& group, const Call& call, size_t longest)
      : group_(group), job_(*group.job_), seat_(group.seats_[group.rank_]), call_(call) {
    call_.sequence = ++seat_.calls;
    fingerprint_ = agreement(call_, longest);
    job_.begin(me(), call_, group.board_->group, group.size_);
  }
  Turn(const Turn&) = delete;
  ~Turn() {
    if (!std::uncaught_exceptions()) job_.end(me());
  }

  uint64_t step() const { return seat_.steps; }  // the coming one
  Slot& slot() { return group_.slot(group_.rank_, seat_.steps); }
  // Takes the coming step: my slot is filled, and all slots are when this returns. The calls agree then.
  void take_step();

 private:
  int me() const { return group_.members_[group_.rank_]; }
  bool filled(int r) const {
    return group_.slot(r, seat_.steps - 1).filled.load(std::memory_order_seq_cst) >= seat_.steps;
  }
  void compare(int peers) const;
  [[noreturn]] void report() const;

  SharedMemory& group_;
  Job& job_;
  Seat& seat_;
  Call call_;
  uint64_t fingerprint_;
};

}  // namespace weft
