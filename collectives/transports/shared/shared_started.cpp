// SPDX-License-Identifier: Apache-2.0
// Collectives in two halves in shared memory, and memory that all ranks of a group have in common.
#include <cstring>

#include "weft/collectives/transports/shared/group_state.h"
#include "weft/engine/kernels/backend.h"

namespace weft {

// Between its two halves a collective consists of the pending slots of its ranks. Destroying it counts as having read.
class SharedMemory::PendingCall final : public Transport::Request {
 public:
  PendingCall(SharedMemory& group, const Call& call, size_t longest, uint64_t number)
      : group_(group), call_(call), longest_(longest), number_(number) {}
  ~PendingCall() override { count_read(); }
  bool ready() override {
    for (int r = 0; r < group_.size_; ++r)
      if (!filled(r)) return false;
    return true;
  }
  void finish(Read read) override;

  static void* operator new(size_t bytes) { return pool::take(bytes); }
  static void operator delete(void* place, size_t bytes) { pool::give(place, bytes); }

 private:
  PendingSlot& slot(int r) const { return group_.pending_slot(r, number_); }
  bool filled(int r) const { return slot(r).filled.load(std::memory_order_seq_cst) > number_; }
  void compare() const;
  void count_read();

  SharedMemory& group_;
  const Call call_;
  const size_t longest_;
  const uint64_t number_;
  bool read_counted_ = false;
};

void SharedMemory::PendingCall::finish(Read read) {
  const int me = group_.members_[group_.rank_], n = group_.size_;
  const bool waits = !ready();  // if not, this may be part of another wait, whose call is the one to report
  if (waits) group_.job_->begin(me, call_, group_.state_->group, n);
  for (int r = 0; r < n; ++r) group_.await(slot(r).filled, number_ + 1, r, [&] { compare(); });
  compare();
  for (int r = 0; r < n; ++r) group_.peers_[static_cast<size_t>(r)] = group_.job_->address(slot(r).bytes);
  read({0, longest_, group_.peers_});
  count_read();
  if (waits) group_.job_->end(me);
}

void SharedMemory::PendingCall::compare() const {
  const uint64_t mine = slot(group_.rank_).fingerprint;
  bool agree = true;
  std::string calls;
  for (int r = 0; r < group_.size_; ++r) {
    if (!filled(r)) continue;
    agree = agree && slot(r).fingerprint == mine;
    if (agree) [[likely]]
      continue;
    calls.clear();
    for (int i = 0; i < group_.size_; ++i)
      if (filled(i))
        calls += "\n  rank " + text(group_.members_[i]) + " has started call " + text(slot(i).call.sequence) +
                 " of group " + text(group_.state_->group) + " (" + text(group_.size_) +
                 " ranks): " + slot(i).call.text();
  }
  if (!agree)
    group_.job_->fail(
        group_.members_[group_.rank_],
        Fault(exit_codes::mismatch, "collective mismatch: the ranks of a group have started different calls" + calls));
}

void SharedMemory::PendingCall::count_read() {
  if (read_counted_) return;
  read_counted_ = true;
  group_.exposed_[number_ % PendingSlot::count].unfinished = false;
  for (int r = 0; r < group_.size_; ++r) slot(r).reads.fetch_add(1, std::memory_order_seq_cst);
  if (group_.state_->event.has_sleepers()) group_.state_->event.wake_all();
}

std::unique_ptr<Transport::Request> SharedMemory::start(const Call& requested, Tensor mine, size_t longest, Ranges) {
  RankSlots& own = rank_slots_[rank_];
  const uint64_t number = own.started;
  if (!state_->pending.load(std::memory_order_relaxed)) allocate_pending_slots();
  PendingSlot& slot = pending_slot(rank_, number);
  ExposedTensor& exposed = exposed_[number % PendingSlot::count];
  require(!exposed.unfinished, requested.verb, ": ", size_t{PendingSlot::count},
          " collectives of this group have been started since one that still waits to be finished");
  Call call = requested;
  call.sequence = ++own.calls;
  job_->begin(members_[rank_], call, state_->group, size_);
  await(slot.reads, number / PendingSlot::count * static_cast<uint64_t>(size_), -1, [] {});
  release_exposed();
  exposed = {readable_by_peers(std::move(mine)), true};
  slot.bytes = job_->offset_of(exposed.tensor.data());
  slot.call = call;
  slot.fingerprint = agreement(call, longest);
  slot.filled.store(++own.started, std::memory_order_seq_cst);
  if (state_->event.has_sleepers()) state_->event.wake_all();
  job_->end(members_[rank_]);
  return std::make_unique<PendingCall>(*this, call, longest, number);
}

Tensor SharedMemory::readable_by_peers(Tensor mine) const {
  if (visible({mine.data<std::byte>(), mine.bytes()}) && mine.unshared()) return mine;
  Tensor copy = address_space_ == AddressSpace::one_process
                    ? Tensor::like(mine)
                    : Tensor(arena_->allocate(mine.bytes()), 0, mine.shape(), mine.dtype());
  copy.copy_from(mine);
  if (!keeps_stream_order()) backend(copy.device()).synchronize();
  return copy;
}

// Releases tensors in the order in which their collectives were started, up to the first that a rank has yet to read.
void SharedMemory::release_exposed() {
  for (; first_exposed_ < rank_slots_[rank_].started; ++first_exposed_) {
    const uint64_t rounds = first_exposed_ / PendingSlot::count + 1;
    if (pending_slot(rank_, first_exposed_).reads.load(std::memory_order_acquire) <
        rounds * static_cast<uint64_t>(size_))
      return;
    exposed_[first_exposed_ % PendingSlot::count].tensor = {};
  }
}

// Other ranks may still have to read tensors of this rank. Threads leave them to the job. Processes need not: nothing
// is taken from this arena any more, so its memory does not change.
SharedMemory::~SharedMemory() {
  release_exposed();
  for (; address_space_ == AddressSpace::one_process && first_exposed_ < rank_slots_[rank_].started; ++first_exposed_)
    job_->keep_for_group(state_->group, std::move(exposed_[first_exposed_ % PendingSlot::count].tensor));
}

StorageHandle SharedMemory::allocate_common(size_t bytes, Site site) {
  const int64_t size[] = {static_cast<int64_t>(bytes)};
  const Call call = with_counts(describe(Verb::allocate_common, site), size);
  const Offset made = rank_ == 0 ? arena_->take_common(bytes, size_) : 0;
  Offset place = made;
  expose(call, std::as_bytes(std::span(&made, 1)), sizeof made,
         [&](const Part& part) { std::memcpy(&place, part.peers[0], sizeof place); });
  return arena_->share_common(place, bytes);
}

}  // namespace weft
