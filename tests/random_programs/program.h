// SPDX-License-Identifier: Apache-2.0
#pragma once
// A random program as a value, so that it can be run, shrunk and printed. README.md in this folder has the overview.
//
// Every value of a program is a matrix of three columns, and ranks may have different numbers of rows. A step takes
// earlier values and makes one more. The objective is the sum of the terms.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/collectives/verbs.h"

namespace weft::random_programs {

inline constexpr int64_t columns = 3;
using Extents = std::vector<int64_t>;  // the rows of a value on each rank of the world

// A way to divide the world into groups: every rank is in exactly one of them.
struct Partition {
  std::string name;
  std::vector<int> color;  // of each rank of the world
  bool reversed = false;   // whether ranks are in descending order in their group

  std::vector<int> members(int rank) const;  // the world ranks of the group that `rank` is in, in its order
  int position(int rank) const;              // in its group
};

// A bit of a step's dice: whether it becomes what the error advises if Weft refuses it, or is left out.
inline constexpr uint32_t follows_advice = 64;

// What a step may need to know besides its kind; a kind reads its own numbers off the dice.
struct Step {
  int kind = 0;  // an index into step_kinds()
  std::vector<int> inputs = {};
  int group = 0;  // an index into Program::partitions
  uint32_t dice = 0;
  bool halves = false;  // whether a collective is started here and waited for at the first use of its result
  int piece = 0;        // neighbours with the same number other than 0 are one checkpoint
};

// A term of the loss: the sum of a value times weights. Weights of its own make a rank's cotangent its own. A sum may
// also be completed over all ranks.
enum class Weights : uint8_t { equal, own, summed };
struct Term {
  int value = 0;
  Weights weights = Weights::equal;
};

// Where a step's inputs and result have how many rows, and how large their elements are at most.
struct Layout {
  std::vector<Extents> in;  // to which its inputs are fitted
  Extents out;
  double bound = 1;        // of the result
  double factor = 1;       // by which the result is scaled
  double input_bound = 0;  // of all inputs
};

struct Program {
  uint64_t seed = 0;
  int ranks = 1;
  bool declares_world = true;         // before the first step
  int stage = -1;                     // of the training that holds some parameters; -1: there is none
  std::vector<Partition> partitions;  // the first is the world
  std::vector<Step> steps;
  std::vector<Term> terms;

  // Equal weights are for values that have equal numbers of rows.
  bool has_own_weights(const Term& term, const Layout& layout) const;
  const Partition& partition(const Step& step) const { return partitions[static_cast<size_t>(step.group)]; }
};

// The steps outside of a checkpoint that it uses, and the steps in it that are used outside, besides its last.
std::vector<int> inputs_of_piece(const Program& program, size_t first, size_t last);
std::vector<int> outputs_of_piece(const Program& program, size_t first, size_t last);

// The layouts of all steps; or the first step that does not suit its inputs.
struct Layouts {
  std::vector<Layout> of_steps;
  int misfit = -1;
};
Layouts lay_out(const Program& program);

// The program without a step. What used it uses its first input instead; without an input, its users go, too, and so
// do steps that do not suit their inputs any more. A program without terms is empty.
Program without(const Program& program, int step);
// The program after all steps that do not suit their inputs, and steps that nothing uses, are gone.
Program fitting(Program program);
Program without_unused(const Program& program);

bool are_equal(const Extents& rows);
// Whether rows of a value may be cut or repeated to other numbers without a rank doing what another one with an equal
// value does not do.
bool may_fit(const Extents& from, const Extents& to);

}  // namespace weft::random_programs
