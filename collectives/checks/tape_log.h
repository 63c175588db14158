// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a tape did, node by node: op and inputs, placement, value and cotangent. print_tapes.h prints it. A tape keeps
// no values, so a log notes them, as text, as they come:
//
//   Tape tape;
//   TapeLog log(tape);  // before the first op, as long as values and cotangents are to be seen
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

  struct Excerpt {      // of a tensor
    std::string whole;  // "[[1, 2], [3, 4]]"; empty if there are many values
    std::string brief;  // "256x128 a3f9 0.5 -1.25 ...": shape, digest, first values
  };
  struct Entry {             // of a node
    std::string op, inputs;  // "matmul", "(3, const)": the numbers of nodes
    bool collective;
    Placements placements;
    Excerpt value, cotangent;  // the cotangent is that of the last walk
  };
  // By node; from the log of the tape, if it has one.
  static std::vector<Entry> entries(const Tape& tape);

 private:
  static void add_nodes(const Tape& tape, std::vector<Entry>& entries);
  void watched(const Var& leaf, const Parameter* parameter) override;
  void computed(const Var& result, const Op& op, std::span<const Var* const> inputs) override;
  void placement_changed(const Var& x) override;
  void walk_begins(bool) override;
  void arrived(const Var& gradient, const std::string& of, int64_t node, Placements placements) override;
  void walk_ends(bool) override {}
  void collective_begins(const void*, const std::string&) override {}

  Tape& tape_;
  std::vector<Entry> entries_;
};

}  // namespace weft
