// SPDX-License-Identifier: Apache-2.0
#include "tests/random_programs/sweep.h"

#include "tests/random_programs/step_kinds.h"

namespace weft::random_programs {

namespace {

// A way to build a value that truly has a placement: the kinds of two steps, of which the second is over a group.
struct Origin {
  const char* leaf;
  const char* made = nullptr;  // from the leaf
  bool over_group = true;      // whether it differs by group
};
constexpr Origin origins[] = {{"parameter", nullptr, false},            // Replicated
                              {"leaf of a group"},                      // Replicated over the group
                              {"own leaf", "all_reduce"},               // Replicated over the group
                              {"own leaf", "all_reduce_equal"},         // Invariant over the group
                              {"own leaf", "as_partial"},               // Partial over the group
                              {"own leaf", nullptr, false},             // Varying
                              {"parameter", "as_varying"},              // Varying over the group, and equal
                              {"replicated constant", nullptr, false},  // Constant
                              {"own constant", nullptr, false},         // Varying, without a gradient
                              {"plain equal tensor", nullptr, false},   // unknown
                              {"plain own tensor", nullptr, false}};    // unknown

struct Input {
  const Origin* origin;
  int group;
};

class Sweep {
 public:
  Sweep(int ranks, const std::function<void(const Program&)>& visit) : visit_(visit) {
    empty_.ranks = ranks;
    add_partitions();
    for (const Origin& origin : origins)
      for (int group = 0; group < groups(); ++group)
        if (group == 0 || origin.over_group) inputs_.push_back({&origin, group});
  }

  void run() {
    for (size_t kind = 0; kind < step_kinds().size(); ++kind) {
      const StepKind& k = step_kinds()[kind];
      if (k.inputs == 0 || k.trained) continue;
      for (int group = 0; group < (k.over_group ? groups() : 1); ++group)
        for (const bool halves : {false, true})
          if (!halves || k.start) visit_all({.kind = static_cast<int>(kind), .group = group, .halves = halves}, k);
    }
  }

 private:
  int groups() const { return static_cast<int>(empty_.partitions.size()); }

  void add(const std::string& name, const std::function<int(int)>& color) {
    Partition partition{name, {}};
    for (int r = 0; r < empty_.ranks; ++r) partition.color.push_back(color(r));
    empty_.partitions.push_back(std::move(partition));
  }
  void add_partitions() {
    const int n = empty_.ranks;
    add("world", [](int) { return 0; });
    if (n == 2) {
      add("again", [](int) { return 0; });
      add("alone", [](int r) { return r; });
    } else if (n == 4) {
      add("rows", [](int r) { return r / 2; });
      add("columns", [](int r) { return r % 2; });
    } else {
      add("beginning", [&](int r) { return r < n - 1 ? 0 : 1; });
      add("end", [](int r) { return r > 0 ? 1 : 0; });
    }
  }

  // All pairs of inputs for the first two inputs; more inputs are like the second.
  void visit_all(const Step& step, const StepKind& kind) {
    const bool variant = kind.feature == Feature::registry && !kind.name.ends_with("/0");
    for (size_t first = 0; first < inputs_.size(); ++first)
      for (size_t second = 0; second < (kind.inputs > 1 ? inputs_.size() : 1); ++second)
        if (kind.inputs == 1 || !variant || second == (first + kind.name.size()) % inputs_.size())
          visit_one(step, kind, first, second);
  }

  void visit_one(Step step, const StepKind& kind, size_t first, size_t second) {
    Program program = empty_;
    program.seed = ++number_;
    for (int i = 0; i < kind.inputs; ++i) step.inputs.push_back(add_input(program, inputs_[i == 0 ? first : second]));
    step.dice = dice();
    program.steps.push_back(std::move(step));
    for (size_t i = program.steps.size(); i-- > 0;) program.terms.push_back({static_cast<int>(i), Weights::own});
    program = fitting(std::move(program));
    visit_(program);
  }

  int add_input(Program& program, const Input& input) {
    program.steps.push_back({.kind = kind_named(input.origin->leaf), .group = input.group, .dice = dice()});
    if (input.origin->made) {
      const int leaf = static_cast<int>(program.steps.size()) - 1;
      program.steps.push_back(
          {.kind = kind_named(input.origin->made), .inputs = {leaf}, .group = input.group, .dice = dice()});
    }
    return static_cast<int>(program.steps.size()) - 1;
  }

  // Without the bit by which steps follow the advice of errors.
  uint32_t dice() { return static_cast<uint32_t>(Dice(++drawn_).bits()) & ~follows_advice; }

  const std::function<void(const Program&)>& visit_;
  Program empty_;
  std::vector<Input> inputs_;
  uint64_t number_ = 0, drawn_ = 0;
};

}  // namespace

void sweep(int ranks, const std::function<void(const Program&)>& visit) { Sweep(ranks, visit).run(); }

}  // namespace weft::random_programs
