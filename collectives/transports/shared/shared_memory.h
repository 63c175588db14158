// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ranks that share memory: threads of one process, or processes of one node that have mapped the same file.
//
// A call consists of one or more steps. Every rank has two slots in the state of the group, and uses them alternately,
// one per step. In a step a rank writes the fingerprint of its call to its slot, with a few bytes or the offset of more
// bytes. Then it marks the slot as filled, and waits until all ranks have filled theirs. Two slots make any other
// waiting unnecessary: a rank fills the slot of step s + 2 only after all ranks have filled those of step s + 1, and
// they have read the slots of step s by then.
//
// Ranks read bytes in place where they can, as threads always do; this costs one more step, in which all ranks report
// that they have read. All other bytes are copied to staging memory, part by part.
//
// Every rank also has a ring of pending slots, for collectives in two halves (shared_started.cpp). Starting a
// collective fills a pending slot and does not wait. Finishing it reads the pending slots of all ranks under the same
// number, and counts the read in each of them.
#include <array>
#include <memory>
#include <vector>

#include "weft/collectives/transports/job/job.h"
#include "weft/collectives/transports/shared/shared_arena.h"

namespace weft {

class SharedMemory : public Transport {
 public:
  // Threads can read each other's whole address space. Processes share only the job's memory.
  enum class AddressSpace { one_process, job_memory };

  // Makes the state of the group of all ranks of a new job.
  static void lay_out(Job& job, AddressSpace address_space);
  // This rank's view of that group. All state is in the job's memory, so a second view can take over from a first.
  static std::unique_ptr<SharedMemory> connect(std::shared_ptr<Job> job, int rank, AddressSpace address_space);

  const std::shared_ptr<Job>& job() const { return job_; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  GlobalRank global(GroupRank rank) const override;
  std::string description() const override;
  ~SharedMemory() override;
  void exchange(const Call& call, Bytes mine, size_t longest, Ranges, Read read) override;
  std::unique_ptr<Request> start(const Call& call, Tensor mine, size_t longest, Ranges) override;
  std::shared_ptr<Unfinished> unfinished() override { return job_->unfinished(members_[rank_]); }
  void reduce(const Call& call, Bytes mine, std::span<std::byte> result, const Reduction& reduction) override;
  void send(Call call, GroupRank to, Bytes bytes) override;
  Call receive(Call call, GroupRank from, std::span<std::byte> bytes) override;
  std::unique_ptr<Transport> split(int color, int key, Site site) override;
  bool shows_device_memory() const override { return address_space_ == AddressSpace::one_process; }
  bool keeps_stream_order() const override { return size_ == 1; }
  StorageHandle allocate_shown(size_t bytes) override;
  StorageHandle allocate_common(size_t bytes, Site site) override;
  std::string busy_with(const std::string& what) override;
  void finalize(Site site) override;

 private:
  struct GroupState;
  struct Slot;
  struct RankSlots;
  struct Stage;
  struct Channel;
  struct Message;
  struct BufferOffsets;
  struct PendingSlot;
  class CallScope;    // one call with all its steps
  class PendingCall;  // a started call

  static Offset new_group_state(Job& job, const std::vector<int>& members, AddressSpace address_space, int holders);
  SharedMemory(std::shared_ptr<Job> job, int rank, AddressSpace address_space, Offset state);
  Slot& slot(int r, uint64_t step) const;
  Channel& channel(int from, int to) const;
  std::byte* staged(int r, uint64_t step) const;
  std::byte* folded(int r, uint64_t step) const;
  std::byte* grow(Stage& stage, size_t bytes);  // makes room for `bytes` in staging memory of this rank

  bool visible(Bytes bytes) const;  // whether other ranks can read them in place
  void publish(CallScope& scope, Bytes mine, Bytes result) const;
  // Whether the bytes of any rank, those of all ranks, and the results of all ranks can be read in place.
  struct Visibility {
    bool any, all, results;
  };
  Visibility locate_buffers(uint64_t step);  // fills inputs_ and results_ from the slots of all ranks
  std::span<const std::byte* const> peers(size_t first, uint64_t step, size_t skipped);  // at byte `first`
  void expose_in_one_step(CallScope& scope, Bytes mine, size_t longest, Read read);
  void stage(uint64_t step, Bytes mine, size_t first, size_t last);
  void allocate_pending_slots();
  PendingSlot& pending_slot(int r, uint64_t number) const;
  Tensor readable_by_peers(Tensor mine) const;  // `mine` itself, or a copy
  void release_exposed();
  // Waits until *word has reached the value. `owner` is the rank that raises it, or -1 if several ranks do.
  template <class Meanwhile>
  void await(const std::atomic<uint64_t>& word, uint64_t value, int owner, Meanwhile&& meanwhile);

  std::shared_ptr<Job> job_;
  GroupState* state_;
  RankSlots* rank_slots_;   // of all ranks
  const int32_t* members_;  // global ranks
  int rank_, size_;
  size_t part_;
  AddressSpace address_space_;
  SpinPolicy spin_policy_;
  std::shared_ptr<SharedArena> arena_;
  std::vector<const std::byte*> inputs_, results_;  // of each rank; an input that is staged is null
  std::vector<const std::byte*> peers_;
  std::vector<std::vector<Offset>> in_flight_;  // messages to each rank whose memory cannot be reused yet
  // The tensor of a collective that this rank has started. It lives until all ranks have read it.
  struct ExposedTensor {
    Tensor tensor;
    bool unfinished = false;  // by this rank
  };
  std::vector<ExposedTensor> exposed_;  // by pending slot
  uint64_t first_exposed_;              // the number of the oldest collective whose tensor a rank may still read
};

}  // namespace weft
