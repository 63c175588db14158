// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the ranks of one node share: a range of memory with the states of their groups; the log of every rank, with its
// last calls and what it waits for; and the first failure. All ranks can read the logs. If the memory is a file, they
// can be read after the end of the job.
//
// The memory contains no addresses, because processes map it at different addresses. It contains Offsets.
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "weft/collectives/run_ranks.h"
#include "weft/collectives/transport.h"
#include "weft/collectives/transports/job/blocks.h"
#include "weft/collectives/transports/job/waiting.h"
#include "weft/collectives/unfinished.h"

namespace weft {

class Job {
 public:
  static constexpr int log_length = 64;

  struct Entry {
    Call call;
    int64_t began;              // milliseconds since the machine started
    int32_t group, group_size;  // group 0 has all ranks
  };
  // A rank sleeps until the rank `awaited` raises *word to `value`.
  struct Wait {
    Offset word;
    uint64_t value;
    int64_t since;
    int32_t awaited;
    int32_t asleep;
  };
  struct alignas(64) Rank {
    std::atomic<int32_t> process, thread, global;
    std::atomic<uint64_t> calls;      // the current or last call is in log[(calls - 1) % log_length]
    std::atomic<int64_t> ended;       // when that call ended, or 0 while it runs
    std::atomic<uint64_t> changes;    // of `wait`, counted before and after each
    std::atomic<uint64_t> goes_on;    // how often it has gone on, while it waited, with what is unfinished
    std::atomic<int64_t> busy_since;  // 0 if the rank is not busy
    std::atomic<int64_t> end;  // 1 + the process's status as waitpid gives it, if somebody has recorded it; else 0
    RacySnapshot<std::array<char, 256>> busy_with;
    RacySnapshot<Wait> wait;
    std::array<RacySnapshot<Entry>, log_length> log;
  };

  // Makes a new job in fresh memory, or opens one that a peer has made.
  static std::shared_ptr<Job> create(Memory memory, int ranks, std::chrono::milliseconds deadline);
  static std::shared_ptr<Job> open(Memory memory, std::chrono::milliseconds deadline);
  // A copy of the file of a job that has ended, or of its logs, to read. An Error names the file if it is none.
  static std::shared_ptr<Job> recorded(const std::string& path);
  static std::shared_ptr<Job> recorded(std::span<const std::byte> bytes, const std::string& path);

  // Adds the calling thread as a rank. `rank` is its number on this node, `global` its number in the whole job, which
  // reports show.
  void join(int rank, int global);
  void join(int rank) { join(rank, rank); }
  int ranks() const;
  SpinPolicy spin_policy() const;  // once all ranks have joined
  std::chrono::milliseconds deadline() const { return deadline_; }
  int new_group();
  Offset world() const;  // the state of the group of all ranks
  void set_world(Offset group);
  // When the whole job began, the same on all its nodes: microseconds since 1970. It tells jobs apart.
  int64_t started() const;
  void set_started(int64_t microseconds);
  std::string node() const;  // its host name

  bool contains(const void* p) const { return memory_.contains(p); }
  template <class T> T* at(Offset offset) const { return reinterpret_cast<T*>(memory_.base() + offset); }
  // Both also work outside the memory, for ranks that share an address space.
  Offset offset_of(const void* p) const {
    return reinterpret_cast<uintptr_t>(p) - reinterpret_cast<uintptr_t>(memory_.base());
  }
  const std::byte* address(Offset offset) const {
    return reinterpret_cast<const std::byte*>(reinterpret_cast<uintptr_t>(memory_.base()) + offset);
  }
  Offset allocate(size_t bytes);  // zeros, 64-byte aligned
  void give(Offset block);
  const Memory& memory() const { return memory_; }

  // A group owns blocks, and the tensors that a rank has left behind for others to read. They are freed when the last
  // rank has left the group, and those of group 0, which has all ranks, when the job ends.
  void add_to_group(Offset block, Blocks::Chain& blocks);
  void keep_for_group(int group, Tensor tensor);
  void give_group(int group, Blocks::Chain& blocks);

  void keep_logs() const;  // after the end of the job, because a report has named the file
  std::span<const std::byte> logs() const;

  // A rank's log.
  void begin(int rank, const Call& call, int group, int group_size);
  void end(int rank);
  Entry last(int rank) const;
  struct Log {
    std::vector<Entry> calls;  // the last ones, in order
    bool ended;                // the last of them
    std::string busy_with;
  };
  Log log(int rank) const;

  // Sets what a rank does outside of calls, and returns what it did before. See Busy.
  std::string busy_with(int rank, const std::string& what);

  // How a rank's process has ended, as waitpid tells it, if somebody has recorded that.
  std::optional<int> end_status(int rank) const;
  void record_end(int rank, int status);

  // A rank calls these around sleeping. check_wait fails if the job has failed, if the deadline has passed, or if there
  // is a deadlock: the rank awaited waits for this one, directly or through others. The deadline counts only time that
  // other ranks could use: not while one of them is busy, and not while this process or the machine is stopped.
  void begin_wait(int rank, int awaited, Offset word, uint64_t value);
  void check_wait(int rank);
  void end_wait(int rank);
  // check_wait also lets unfinished collectives go on, and calls `send`, which sends what ranks on other nodes may be
  // waiting for. A rank that has either of these sleeps for a shorter time.
  void send_meanwhile(int rank, std::function<void()> send) {
    waiting_[static_cast<size_t>(rank)].send = std::move(send);
  }
  const std::shared_ptr<Unfinished>& unfinished(int rank) const {
    return waiting_[static_cast<size_t>(rank)].unfinished;
  }
  std::chrono::milliseconds pause(int rank) const {
    const bool goes_on = waiting_[static_cast<size_t>(rank)].send || !unfinished(rank)->empty();
    return std::chrono::milliseconds(goes_on ? 1 : 20);
  }

  // The job keeps its first failure; `record` returns whether this is it. `fail` records a failure and ends the calling
  // rank; `check` ends it if any rank has failed. A rank ends by an exception, or by `end_handler` where the other
  // ranks would wait for a rank that is gone.
  bool record(int rank, const Fault& fault);
  int first_to_fail() const;  // -1 if no rank has failed
  Fault failure() const;      // of that rank
  [[noreturn]] void fail(int rank, const Fault& fault);
  void check();
  using EndHandler = std::function<void(const Fault&, bool first)>;
  EndHandler end_handler;

  bool is_rank(int rank, int process, int thread) const;  // thread 0: any
  int global(int rank) const;
  int process(int rank) const;
  std::string doing(int rank) const;  // its current or last call: "call 17 of group 0 (3 ranks): all_reduce ..."
  std::string table() const;          // a line per rank, with its current or last call

 private:
  struct Header;
  Job(Memory memory, std::chrono::milliseconds deadline);
  void prepare_waits(int ranks);
  Header& header() const { return *at<Header>(Memory::first); }
  static Offset end_of_logs(int ranks);
  Rank& rank(int r) const;
  [[noreturn]] void end(const Fault& fault, bool first);
  std::string wait_cycle(int rank);
  std::vector<uint64_t> times_gone_on() const;  // of all ranks
  bool any_rank_busy(int64_t now) const;
  std::string name(int rank) const;   // "rank 3"
  std::string state(int rank) const;  // "STOPPED (T)"

  Memory memory_;
  std::chrono::milliseconds deadline_;
  std::mutex mutex_;                 // guards kept_
  std::multimap<int, Tensor> kept_;  // by group
  struct WaitProgress {
    uint64_t suspected_cycle = 0;         // a hash of the wait cycle that the last check has found
    std::vector<uint64_t> went_on;        // how often all ranks had gone on by then
    int64_t last_check = 0, elapsed = 0;  // when the last check was, and how much of the deadline has passed
    std::function<void()> send;
    std::shared_ptr<Unfinished> unfinished = std::make_shared<Unfinished>();
  };
  std::vector<WaitProgress> waiting_;  // per rank
};

// The exception that is being handled, as a Fault.
Fault fault_being_handled();

}  // namespace weft
