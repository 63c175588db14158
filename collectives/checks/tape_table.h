// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tapes of all ranks side by side. Each line is a node, in the order in which nodes came: what ranks do by
// themselves, until all have come to a collective. Ranks share the line of a collective, and those of nodes that are
// alike.
#include <functional>
#include <optional>

#include "weft/collectives/checks/tape_log.h"

namespace weft {

struct TapeTable {
  struct Excerpt {      // of a tensor
    std::string brief;  // "256x128 a3f9 0.5 -1.25 ...": shape, digest, first values
    std::string whole;  // "[[1, 2], [3, 4]]"; empty if there are many values
  };
  struct Cell {  // a node of one rank
    int64_t number = 0;
    std::string inputs;     // "(3, const)"
    std::string placement;  // "R", or "RV": a letter for each group that the tape knows, in the order it met them
    std::string dtype;      // "f32"
    Excerpt value, cotangent;
  };
  struct Line {
    std::string op, place;  // as in a log
    bool collective = false;
    std::vector<std::optional<Cell>> ranks;
  };
  std::vector<Line> lines;
};

TapeTable table_of(const TapeLog::Notes& mine);  // of this rank alone
// Equal on all ranks, which all call it.
TapeTable table_of(const TapeLog::Notes& mine, Communicator& comm, Site site = Site::here());

// The tapes of a step, in the order in which they began.
class TapeRecord {
 public:
  bool on = false;                          // whether tapes are added
  std::function<void(Tape& tape)> observe;  // called with each tape that is added, if set
  void add(Tape& tape);                     // before its first op
  // Equal on all ranks, which all call it. The record is empty then.
  std::vector<TapeTable> take(Communicator& comm, Site site = Site::here());

 private:
  std::vector<std::shared_ptr<const TapeLog::Notes>> tapes_;
};

}  // namespace weft
