// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a tape did, node by node: op and inputs, placement, value and cotangent. tape_table.h lays this out as text for
// all ranks, and print_tapes.h prints it. A tape keeps no values, so a log notes some of them as they come:
//
//   Tape tape;
//   TapeLog log(tape);  // before the first op, as long as values and cotangents are to be seen
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/collectives/communicator.h"
#include "weft/engine/tape/observer.h"

namespace weft {

class TapeLog final : public Tape::Observer {
 public:
  explicit TapeLog(Tape& tape);
  ~TapeLog() override { tape_.forget(*this); }
  TapeLog(const TapeLog&) = delete;
  TapeLog& operator=(const TapeLog&) = delete;

  static constexpr int64_t most_values = 64;  // of a tensor that is kept whole
  static constexpr int64_t first_values = 4;  // kept of all others

  struct Excerpt {  // of a tensor
    Shape shape;
    DType dtype;
    Tensor values;  // all of them, or the first of many; undefined if none were seen
    // A checksum: of the whole tensor if ranks should have equal ones, or if it is small. Else of a sample, since to
    // read all values of a step would take a fifth of its time.
    uint16_t digest = 0;
  };
  struct Node {
    std::string op, inputs;  // "matmul", "(3, const)": the numbers of nodes
    bool collective;
    Placements placements;
    Excerpt value;
    std::optional<Excerpt> cotangent;  // of the last walk
    std::string place;                 // of the call of a collective: "losses/common/key_schedule.cpp:41"
  };
  struct Notes {
    std::vector<Node> nodes;
    int groups = 0;  // how many groups of ranks the tape knows
  };
  static Notes notes(const Tape& tape);  // those of the tape's log, if it has one
  // From now on the tape has a log of its own, whose notes outlive the tape. Nothing if it has a log.
  static std::shared_ptr<const Notes> keep(Tape& tape);

 private:
  static const TapeLog* find(const Tape& tape);
  static void add_nodes(const Tape& tape, Notes& notes);
  void watched(const Var& leaf, const Parameter* parameter) override;
  void computed(const Var& result, const Op& op, std::span<const Var* const> inputs) override;
  void placement_changed(const Var& x) override;
  void walk_begins(bool) override;
  void arrived(const Var& gradient, const std::string& of, int64_t node, Placements placements) override;
  void walk_ends(bool) override {}
  void collective_begins(const void*, const std::string& place) override { call_ = place; }

  Tape& tape_;
  const std::shared_ptr<Notes> notes_ = std::make_shared<Notes>();
  std::string call_;  // the last collective: "all_gather at losses/common/key_schedule.cpp:41"
};

}  // namespace weft
