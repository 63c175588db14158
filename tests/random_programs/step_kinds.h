// SPDX-License-Identifier: Apache-2.0
#pragma once
// All kinds of steps. Each is one place: which rows its inputs must have, what it does, and how it is printed.
#include <functional>

#include "tests/random_programs/numbers.h"
#include "tests/random_programs/training.h"
#include "weft/collectives/started.h"

namespace weft::random_programs {

enum class Feature : uint8_t { leaf, constant, local, registry, collective, conversion, share, custom, training };
inline constexpr const char* feature_names[] = {"leaves",      "constants", "local",  "registry", "collectives",
                                                "conversions", "share",     "custom", "training"};

// Where a step is in its program.
struct Situation {
  const Program& program;
  const Step& step;
  std::vector<const Layout*> inputs;

  const Partition& partition() const { return program.partition(step); }
  int ranks() const { return program.ranks; }
  Extents everywhere(int64_t rows) const { return Extents(static_cast<size_t>(ranks()), rows); }
  const Extents& rows(size_t input = 0) const { return inputs[input]->out; }
  double bound(size_t input = 0) const { return inputs[input]->bound; }
};

// One execution of a step on this rank.
struct Call {
  const Program& program;
  const Step& step;
  const Layout& layout;
  Vars x;  // the inputs, fitted
  Tape& tape;
  Communicator& world;
  Communicator& group;
  Training& training;
  std::function<Tensor()> data;                 // of a leaf or a constant
  std::function<const Parameter&()> parameter;  // with these data

  uint32_t dice() const { return step.dice; }
  GroupRank root() const { return {static_cast<int>(step.dice % static_cast<uint32_t>(group.size()))}; }
  Rows rows() const { return rows_in(group, layout.in[0]); }  // of the first input, on the ranks of the group
  Rows split() const { return rows_in(group, layout.out); }   // of the result
};

// What a kind of step does with a Call `c`, as code and as text. Printed programs have the text, with what `c` stands
// for in its place.
#define CODE(...) []([[maybe_unused]] const Call& c) { return __VA_ARGS__; }, #__VA_ARGS__

struct StepKind {
  std::string name;
  Feature feature;
  int inputs;
  std::function<std::optional<Layout>(const Situation&)> lay_out;
  std::function<Var(const Call&)> run;
  std::string text;
  std::function<Started(const Call&)> start = {};  // empty if it cannot be run in halves
  std::string verb_text = {};                      // the first argument of start()
  // Of a leaf or a constant: who shares its values. Differences move all of these ranks' values together.
  std::function<int(const Program&, const Step&, int rank)> whose = {};
  std::optional<Training::Use> trained = {};
  bool over_group = false;  // whether it is over the group of its step

  bool is_leaf() const { return feature == Feature::leaf; }
  bool is_differentiated() const { return is_leaf() || feature == Feature::training; }
};

const std::vector<StepKind>& step_kinds();
int kind_named(const std::string& name);

// The lists that step_kinds() joins.
std::vector<StepKind> leaf_kinds();
std::vector<StepKind> local_kinds();
std::vector<StepKind> registry_kinds();  // one for each sample of each op of the registry
std::vector<StepKind> collective_kinds();
std::vector<StepKind> conversion_kinds();
std::vector<StepKind> custom_kinds();
std::vector<StepKind> training_kinds();

// Layouts that many kinds share.
namespace layouts {
using Of = std::function<std::optional<Layout>(const Situation&)>;
std::optional<Layout> as_it_is(const Situation& s);  // the result has the rows of the only input
std::optional<Layout> pairwise(const Situation& s);  // two inputs are fitted to the same rows
std::optional<Layout> equal(const Situation& s);     // all inputs and the result have equal rows on all ranks
int64_t some_rows(const Situation& s);               // a number that the dice choose
Extents sums_in_groups(const Situation& s, const Extents& rows);
}  // namespace layouts

}  // namespace weft::random_programs
