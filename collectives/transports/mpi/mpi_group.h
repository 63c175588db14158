// SPDX-License-Identifier: Apache-2.0
#pragma once
// A group of ranks that MPI connects, by messages only. Every operation is started without waiting and then polled, so
// that a deadline can end it, and ranks yield to each other.
#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "weft/collectives/transports/job/job.h"
#include "weft/collectives/transports/message_steps.h"
#include "weft/collectives/transports/mpi/mpi_wire.h"
#include "weft/collectives/unfinished.h"

namespace weft {

// Polls until done() holds, without sleeping at first. Ends in a Fault when the job has failed or the deadline passes.
void poll(Job& job, int rank_on_node, const std::function<bool()>& done);
void finish(Job& job, int rank_on_node, MPI_Request& request);

// What all groups of a rank send without waiting.
struct Outbox {
  struct Message {
    Tensor tensor;  // keeps the bytes
    Wire::Requests requests;
  };
  std::deque<Message> messages;  // that MPI is still sending
  int groups = 1;                // how many have been made, to number them

  void send(const Tensor& tensor, Transport::Range range, int to, int tag, const Wire& wire);
  void release_delivered();
};

class MpiGroup : public Transport {
 public:
  // The state of a group. A transport is a view of it.
  struct State {
    State(Wire wire, std::shared_ptr<Job> job, int rank_on_node, std::shared_ptr<Outbox> outbox, const Link& link,
          int number)
        : wire(std::move(wire)),
          job(std::move(job)),
          rank_on_node(rank_on_node),
          outbox(std::move(outbox)),
          link(link),
          number(number) {}
    const Wire wire;  // used by this group only
    std::shared_ptr<Job> job;
    int rank_on_node;
    std::shared_ptr<Outbox> outbox;
    const Link link;
    int number;  // for reports; the group of all ranks is 0
    std::vector<int> members = wire.global_ranks();
    uint64_t calls = 0, started = 0, sent = 0, received = 0;
  };
  explicit MpiGroup(std::shared_ptr<State> state) : state_(std::move(state)) {}

  int rank() const override { return state_->wire.rank(); }
  int size() const override { return state_->wire.size(); }
  GlobalRank global(GroupRank rank) const override;
  std::string description() const override;
  std::string choices(bool of_leaders) const override { return choices_on(state_->link, size(), of_leaders); }
  void exchange(const Call& call, Bytes mine, size_t longest, Ranges ranges, Read read) override;
  std::unique_ptr<Request> start(const Call& call, Tensor mine, size_t longest, Ranges ranges) override;
  std::unique_ptr<Request> start_reduction(const Call& call, Tensor mine, Tensor result,
                                           const Reduction& reduction) override;
  std::shared_ptr<Unfinished> unfinished() override { return state_->job->unfinished(state_->rank_on_node); }
  void reduce(const Call& call, Bytes mine, std::span<std::byte> result, const Reduction& reduction) override;
  bool reduces_in_any_order(const Call& call, size_t bytes) const override;
  void send(Call call, GroupRank to, Bytes bytes) override;
  Call receive(Call call, GroupRank from, std::span<std::byte> bytes) override;
  std::unique_ptr<Transport> split(int color, int key, Site site) override;
  std::string busy_with(const std::string& what) override;
  void finalize(Site site) override;
  bool shows_device_memory() const override { return false; }
  bool keeps_stream_order() const override { return false; }
  StorageHandle allocate_shown(size_t bytes) override;

 private:
  // What a rank sends to all others before any other data move: what must be equal on all ranks, how many bytes it
  // exposes, and the bytes, if they are few. It reaches all ranks by log2(n) messages, so it is small enough to cost no
  // more than 256 bytes for each of them on 16 ranks.
  struct Announcement {
    uint64_t fingerprint, sequence_and_started, longest, size;
    std::array<std::byte, small_call> bytes;
    bool agrees_with(const Announcement& other) const {
      return fingerprint == other.fingerprint && sequence_and_started == other.sequence_and_started &&
             longest == other.longest;
    }
  };

  // The exchange of announcements. It is started on construction and finished by sizes().
  class Agreement {
   public:
    Agreement(MpiGroup& group, const Call& call, bool started, Bytes mine, size_t longest);
    bool arrived();               // whether `sizes` need not wait
    std::vector<size_t> sizes();  // how many bytes each rank exposes; a Fault if the ranks are in different calls
    const std::byte* bytes_of(size_t rank) const { return all_[rank].bytes.data(); }  // if no rank exposes many

   private:
    [[noreturn]] void report();

    MpiGroup& group_;
    const Call call_;
    const bool started_;
    Announcement mine_;
    std::unique_ptr<Announcement[]> all_;
    Wire::Requests requests_;
  };
  class Progress;  // with the steps of a collective
  class Started;
  struct Beginning;  // of what is started

  static constexpr int agreement_tag = Wire::tags() - 4, report_tag = Wire::tags() - 3, swap_tag = Wire::tags() - 2,
                       gather_tag = Wire::tags() - 1;

  void begin(const Call& call) { state_->job->begin(state_->rank_on_node, call, state_->number, size()); }
  void end() { state_->job->end(state_->rank_on_node); }
  void wait_until(const std::function<bool()>& done);
  void finish(Wire::Requests& requests);  // and forgets them
  StepTaker taker(size_t part) const { return {rank(), size(), part}; }
  StepTaker taker() const { return taker(static_cast<size_t>(bytes_of_part(state_->link, size()))); }
  Way way_of(Movement movement, size_t bytes) const {
    return message_schedule(movement, static_cast<double>(bytes), size(), state_->link).way;
  }
  Way way_of(size_t bytes, const Reduction& reduction, const Readers* readers) const;
  MessageSteps steps_of(Verb verb, std::span<const size_t> sizes, size_t longest, const Ranges& ranges) const;
  void carry_out(MessageSteps steps, Bytes mine, std::span<std::byte> result, const Read* read);
  std::unique_ptr<Request> started(const Call& requested, Beginning begun);
  // The number of a call that is started, as a tag for its messages. Messages of send and receive have the tag 0.
  int tag_of_started() { return static_cast<int>(1 + state_->started++ % (agreement_tag - 1)); }
  void read_announced(const Agreement& agreement, size_t longest, const Ranges& ranges, Read read);
  struct Choice;
  std::vector<int> members_of(int color, std::span<const Choice> all) const;
  std::vector<int> processes_of(std::span<const int> ranks) const;  // each once
  std::shared_ptr<const MPI_Comm> comm_of(const Call& call, std::span<const Choice> all);

  std::shared_ptr<State> state_;
  std::vector<std::byte> board_;
  std::vector<const std::byte*> peers_;
  std::vector<size_t> begins_;
};

}  // namespace weft
