#pragma once
// Whether what is typed equal is equal. While a DebugRanks exists, every value of its tape that is Replicated,
// Invariant or Same over the group is checksummed, and so are the gradients of Invariant and Partial values, which are
// equal, too. Checksums meet before every collective over the group and at both ends of a walk; where they differ, all
// ranks raise the same Error, which names the first value that does. All ranks have one, or none has. docs/debugging.md
// says more.
//
//   Tape tape;
//   debug_if_asked(tape, comm);          if WEFT_DEBUG=1, as long as the tape
//   const DebugRanks debug(tape, comm);  always, as long as this object
#include <memory>

#include "collectives/communicator.h"
#include "engine/observer.h"

namespace weft {

class DebugRanks final : public Tape::Observer {
 public:
  DebugRanks(Tape& tape, Communicator& comm);  // before anything is recorded
  ~DebugRanks() override { tape_.forget(*this); }
  DebugRanks(const DebugRanks&) = delete;
  DebugRanks& operator=(const DebugRanks&) = delete;

  bool is_of(const Communicator& comm) const { return &comm == &comm_; }
  void compare();  // now, for programs that end without backward

 private:
  struct Seen {
    std::string kind;  // the same on all ranks
    std::string place;
    Tensor value;
    uint64_t checksum;
  };
  using List = std::vector<Seen>;
  struct Mark {  // what ranks tell each other of it
    uint64_t kind, checksum;
    bool operator==(const Mark&) const = default;
  };
  using Marks = std::vector<std::vector<Mark>>;  // of every rank
  // The last value, until it is certain how it is spread.
  struct Last {
    Tensor value;
    Spreads spreads;
    int64_t node = -1;  // or the last before it, if it is not tracked
    bool tracked = false, parameter = false;
    std::string name, origin;
    std::vector<std::pair<size_t, Tensor>> constants;  // inputs that are Same and on no tape
  };

  void watched(const Var& leaf, const Parameter& parameter) override;
  void computed(const Var& result, const Op& op, std::span<const Var* const> inputs) override;
  void respread(const Var& x) override;
  void walk_begins(bool on_all_ranks) override;
  void arrived(const Var& gradient, const std::string& of, int64_t node, Spreads spreads) override;
  void walk_ends(bool on_all_ranks) override;
  void meeting(const void* group, const std::string& place) override;

  void hold(const Var& x, const std::string& name);
  void settle();
  static void see(List& list, const std::string& name, Spread spread, const std::string& place, const Tensor& value);
  Marks gather(const List& list);
  void compare_by_name(const List& list, const Marks& all);
  void compare_in_order(const List& list, const Marks& all);
  [[noreturn]] void report_part(const List& list, size_t entry);
  [[noreturn]] void report_difference(const List& list, uint64_t kind, size_t first, size_t other);

  Tape& tape_;
  Communicator& comm_;
  const int group_;
  Last last_;
  std::string meeting_;  // where the collective that is next was called
  // Parameters, each compared among the ranks that use it. Equal values, which must be the same on all ranks, one by
  // one. And what has to do with gradients or with parts of a sum, which ranks may have different numbers of: that is
  // compared if it corresponds.
  List parameters_, strict_, loose_;
  int walking_ = 0;
};

// By the environment: WEFT_DEBUG=1.
bool debug_is_asked();
// Twice on one tape is as good as once. The tape knows the group either way.
void debug_if_asked(Tape& tape, Communicator& comm);

}  // namespace weft
