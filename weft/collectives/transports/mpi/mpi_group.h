// SPDX-License-Identifier: Apache-2.0
#pragma once
// A group of MPI processes, connected by messages only. Every operation is started without waiting and then polled, so
// that a deadline can end it, and ranks yield to each other if there are more of them than cores.
#include <mpi.h>

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "weft/collectives/transports/job/job.h"

namespace weft {

// Polls until done() holds, without sleeping at first. Ends in a Fault when the job has failed or the deadline passes.
void poll(Job& job, int rank_on_node, const std::function<bool()>& done);
void finish(Job& job, int rank_on_node, MPI_Request& request);
int as_count(size_t bytes);  // of a message, as MPI counts

// The messages of all groups of a process that MPI is still sending.
struct Outbox {
  struct Message {
    std::vector<std::byte> bytes;
    Tensor tensor;  // instead of `bytes`
    MPI_Request request = MPI_REQUEST_NULL;
  };
  std::deque<Message> messages;
  int groups = 1;  // how many have been made, to number them

  void release_delivered();
};

class MpiGroup : public Transport {
 public:
  // The state of a group. A transport is a view of it.
  struct State {
    State(MPI_Comm comm, std::shared_ptr<Job> job, int rank_on_node, std::shared_ptr<Outbox> outbox, int number);
    State(const State&) = delete;
    ~State();
    MPI_Comm comm;  // used by this group only
    std::shared_ptr<Job> job;
    int rank_on_node;
    std::shared_ptr<Outbox> outbox;
    int number;  // for reports; the group of all ranks is 0
    int rank = 0, size = 0;
    std::vector<int> members;  // global ranks
    uint64_t calls = 0, started = 0, sent = 0, received = 0;
  };
  explicit MpiGroup(std::shared_ptr<State> state) : state_(std::move(state)) {}

  int rank() const override { return state_->rank; }
  int size() const override { return state_->size; }
  GlobalRank global(GroupRank rank) const override;
  std::string description() const override;
  void exchange(const Call& call, Bytes mine, size_t longest, Ranges ranges, Read read) override;
  std::unique_ptr<Started> start(const Call& call, Tensor mine, size_t longest, Ranges ranges) override;
  void combine(const Call& call, Bytes mine, std::span<std::byte> result, Fold fold) override;
  bool combine_in_any_order(const Call& call, Bytes mine, std::span<std::byte> result) override;
  void send(Call call, GroupRank to, Bytes bytes) override;
  Call receive(Call call, GroupRank from, std::span<std::byte> bytes) override;
  std::unique_ptr<Transport> split(int color, int key, Site site) override;
  std::string busy_with(const std::string& what) override;
  void finalize(Site site) override;
  bool shows_device_memory() const override { return false; }
  bool keeps_stream_order() const override { return false; }
  StorageHandle allocate_shown(size_t bytes) override;

 private:
  // What a rank sends to all others before any data move.
  struct Announcement {
    Call call;
    bool started;  // in two halves
    size_t longest, size;
  };
  // The exchange of announcements. It is started on construction and finished by sizes().
  class Agreement {
   public:
    Agreement(MpiGroup& group, const Call& call, bool started, size_t mine, size_t longest);
    bool arrived();               // whether `sizes` need not wait
    std::vector<size_t> sizes();  // how many bytes each rank exposes; a Fault if the ranks are in different calls
   private:
    [[noreturn]] void report() const;

    MpiGroup& group_;
    const Announcement mine_;
    std::unique_ptr<Announcement[]> all_;
    MPI_Request request_ = MPI_REQUEST_NULL;
  };
  class PendingCall;  // a started call

  void begin(const Call& call) { state_->job->begin(state_->rank_on_node, call, state_->number, state_->size); }
  void end() { state_->job->end(state_->rank_on_node); }
  void finish(MPI_Request& request) { weft::finish(*state_->job, state_->rank_on_node, request); }
  void expose_all(Bytes mine, std::span<const size_t> sizes, size_t longest, Read read);
  // What ranks send each other at one time. While one is read, the next is on its way.
  struct Swap {
    std::vector<std::byte> staging;
    std::vector<const std::byte*> peers;  // where the bytes received are
    std::vector<size_t> begins;
    std::vector<MPI_Request> requests;
  };
  // Begins to send and to receive the bytes from `skipped` to skipped + part of every range.
  Swap& begin_swap(size_t number, Bytes mine, const Ranges& ranges, size_t skipped, size_t part);
  void finish(Swap& swap);

  std::shared_ptr<State> state_;
  std::vector<std::byte> staging_;
  std::vector<const std::byte*> peers_;
  std::array<Swap, 2> swaps_;
};

}  // namespace weft
