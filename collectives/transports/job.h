#pragma once
// What the ranks of one node have in common: a range of memory, in which groups find their boards; for every rank a
// log of its last calls and what it waits for, readable by the others and, when it is a file, after everybody has
// died; and who failed first.
//
// Nothing in the memory is an address, because processes see it at different places: everything is an Offset.
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "collectives/run_ranks.h"
#include "collectives/transport.h"
#include "collectives/transports/blocks.h"
#include "collectives/transports/waiting.h"

namespace weft {

class Job {
 public:
  static constexpr int log_length = 64;

  struct Entry {
    Call call;
    int64_t began;              // milliseconds since the machine started
    int32_t group, group_size;  // group 0 is everybody
  };
  // What a rank sleeps for: until *word reaches `value`, which is up to `awaited`.
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
    std::atomic<int64_t> ended;       // when, or 0 while it runs
    std::atomic<uint64_t> changes;    // of `wait`
    std::atomic<int64_t> busy_since;  // 0: it is not
    Glimpse<std::array<char, 256>> busy_with;
    Glimpse<Wait> wait;
    std::array<Glimpse<Entry>, log_length> log;
  };

  // Lays a new job out in fresh memory, or finds one that a peer has laid out.
  static std::shared_ptr<Job> create(Memory memory, int ranks, std::chrono::milliseconds deadline);
  static std::shared_ptr<Job> open(Memory memory, std::chrono::milliseconds deadline);

  // Ranks are counted per node here; `global` is what people call this one. Once per rank, from its thread.
  void join(int rank, int global);
  void join(int rank) { join(rank, rank); }
  int ranks() const;
  Patience patience() const;  // meaningful once everybody has joined
  std::chrono::milliseconds deadline() const { return deadline_; }
  int new_group();
  Offset world() const;  // where the board of all ranks is
  void set_world(Offset board);

  bool contains(const void* p) const { return memory_.contains(p); }
  template <class T> T* at(Offset offset) const { return reinterpret_cast<T*>(memory_.base() + offset); }
  // Also of and to addresses outside, for those who share them.
  Offset offset_of(const void* p) const {
    return reinterpret_cast<uintptr_t>(p) - reinterpret_cast<uintptr_t>(memory_.base());
  }
  const std::byte* address(Offset offset) const {
    return reinterpret_cast<const std::byte*>(reinterpret_cast<uintptr_t>(memory_.base()) + offset);
  }
  Offset allocate(size_t bytes);  // zeros, 64-byte aligned
  void give(Offset block);
  const Memory& memory() const { return memory_; }

  // What belongs to a group: blocks, and tensors of a rank that has left it which others may still read. All of it goes
  // when the last rank has left; what belongs to everybody, group 0, when the job ends.
  void belongs(Offset block, Blocks::Chain& blocks);
  void outlive(int group, Tensor tensor);
  void give_group(int group, Blocks::Chain& blocks);

  void keep_logs() const;  // after the end, because a report has named the file

  // A rank's log.
  void begin(int rank, const Call& call, int group, int group_size);
  void end(int rank);
  Entry last(int rank) const;

  // What a rank does outside of calls; returns what it did before. See Busy.
  std::string busy_with(int rank, const std::string& what);

  // Around sleeping. still_waiting throws if the job has failed, the deadline has passed, or the rank awaited, over any
  // number of others, waits for this one. The deadline counts what the others could have used: not the time in which
  // one of them was busy, nor that in which this one did not run itself, because it was stopped or the machine was.
  void waits_for(int rank, int awaited, Offset word, uint64_t value);
  void still_waiting(int rank);
  void waits_no_more(int rank);

  // The first failure of the job is remembered; `record` tells whether this was it. `fail` then ends the calling rank,
  // as `check` does when any rank has failed: with an exception or, where a lost rank would make the others hang, by
  // `ends`.
  bool record(int rank, const Fault& fault);
  int first_to_fail() const;  // -1 while all is well
  Fault failure() const;      // its, if there is one
  [[noreturn]] void fail(int rank, const Fault& fault);
  void check();
  using Ending = std::function<void(const Fault&, bool first)>;
  Ending ends;

  bool is_rank(int rank, int process, int thread) const;  // thread 0: any
  int global(int rank) const;
  std::string doing(int rank) const;  // its current or last call: "call 17 of group 0 (3 ranks): all_reduce ..."
  std::string table() const;          // a line per rank: what it did last, or is doing

 private:
  struct Header;
  Job(Memory memory, std::chrono::milliseconds deadline);
  Header& header() const { return *at<Header>(Memory::first); }
  static Offset end_of_logs(int ranks);
  Rank& rank(int r) const;
  [[noreturn]] void end(const Fault& fault, bool first);
  std::string circle(int rank);
  bool anybody_busy(int64_t now) const;
  std::string name(int rank) const;   // "rank 3"
  std::string state(int rank) const;  // "STOPPED (T)"

  Memory memory_;
  std::chrono::milliseconds deadline_;
  std::mutex mutex_;                     // guards:
  std::multimap<int, Tensor> outlived_;  // by group
  // Per rank, in what it waits for.
  struct Waiting {
    uint64_t suspected = 0;           // what the circle it waits in looked like when last seen
    int64_t looked = 0, counted = 0;  // when it was last seen to wait, and how much of the deadline is used
  };
  std::vector<Waiting> waiting_;
};

// The exception that is being handled: itself, if it is a Fault.
Fault fault_being_handled();

}  // namespace weft
