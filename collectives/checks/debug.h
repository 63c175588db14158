// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checks that values which should be equal on all ranks, by their placement, are equal. A DebugRanks computes a
// checksum of every value of its tape that is Replicated, Invariant or Constant over the group, and of the gradients of
// Invariant and Partial values, which are equal, too. The ranks compare checksums before every collective over the
// group, and before and after backward. If they differ, all ranks throw the same Error, which names the first such
// value. Either all ranks have a DebugRanks, or none. See docs/debugging.md.
//
//   Tape tape;
//   debug_if_asked(tape, comm);          if WEFT_DEBUG=1, as long as the tape lives
//   const DebugRanks debug(tape, comm);  always, as long as this object lives
#include <memory>

#include "weft/collectives/communicator.h"
#include "weft/engine/tape/observer.h"

namespace weft {

class DebugRanks final : public Tape::Observer {
 public:
  DebugRanks(Tape& tape, Communicator& comm);  // before anything is recorded
  ~DebugRanks() override { tape_.forget(*this); }
  DebugRanks(const DebugRanks&) = delete;
  DebugRanks& operator=(const DebugRanks&) = delete;

  bool is_of(const Communicator& comm) const { return &comm == &comm_; }
  void compare();  // for programs that end without backward

 private:
  struct Entry {
    std::string kind;  // must be the same on all ranks
    std::string place;
    Tensor value;
    uint64_t checksum;
  };
  using List = std::vector<Entry>;
  struct Digest {  // of an entry, for the other ranks
    uint64_t kind, checksum;
    bool operator==(const Digest&) const = default;
  };
  using Digests = std::vector<std::vector<Digest>>;  // of every rank
  // The value computed last. Its placement may still change, so it is added to a list when the next one comes.
  struct Last {
    Tensor value;
    Placements placements;
    int64_t node = -1;  // of the value, or the last node before it if it is not tracked
    bool tracked = false, parameter = false;
    std::string name, origin;
    std::vector<std::pair<size_t, Tensor>> constants;  // inputs with equal values that are on no tape
  };

  void watched(const Var& leaf, const Parameter* parameter) override;
  void computed(const Var& result, const Op& op, std::span<const Var* const> inputs) override;
  void placement_changed(const Var& x) override;
  void walk_begins(bool on_all_ranks) override;
  void arrived(const Var& gradient, const std::string& of, int64_t node, Placements placements) override;
  void walk_ends(bool on_all_ranks) override;
  void collective_begins(const void* group, const std::string& place) override;

  void set_last(const Var& x, const std::string& name);
  void settle();  // adds the last value to its list
  static void add(List& list, const std::string& name, Placement placement, const std::string& place,
                  const Tensor& value);
  Digests gather(const List& list);
  void compare_by_name(const List& list, const Digests& all);
  void compare_in_order(const List& list, const Digests& all);
  [[noreturn]] void report_part(const List& list, size_t entry);
  [[noreturn]] void report_difference(const List& list, uint64_t kind, size_t first, size_t other);

  Tape& tape_;
  Communicator& comm_;
  const int group_;
  Last last_;
  std::string call_;  // where the next collective was called
  List parameters_;   // each is compared among the ranks that use it
  List strict_;       // values that must be equal on all ranks, in the same order
  List loose_;        // gradients and parts of sums; compared only if all ranks have the same number of each kind
  int walking_ = 0;
};

bool debug_is_asked();  // WEFT_DEBUG=1
// A second call for the same tape and group does nothing. The group is declared to the tape in any case.
void debug_if_asked(Tape& tape, Communicator& comm);

}  // namespace weft
