// SPDX-License-Identifier: Apache-2.0
#pragma once
// One forward pass of a program on one rank.
#include <map>
#include <memory>

#include "tests/random_programs/step_kinds.h"

namespace weft::random_programs {

// The communicators of a program on one rank; they outlive all tapes.
class Scene {
 public:
  Scene(const Program& program, Communicator& world);
  Communicator& world() const { return world_; }
  Communicator& group(int partition) const {
    return partition == 0 ? world_ : *groups_[static_cast<size_t>(partition) - 1];
  }
  int partitions() const { return static_cast<int>(groups_.size()) + 1; }

 private:
  Communicator& world_;
  std::vector<std::unique_ptr<Communicator>> groups_;
};

// Weft has refused a step.
struct Refusal : Error {
  int step;
  Refusal(int step, const std::string& what) : Error(what), step(step) {}
};

// The direction in which differences move a leaf; other keys give other directions.
Tensor direction_of(const Program& program, const Step& step, const Layout& layout, int rank, uint64_t key = 0);

class Execution {
 public:
  using Asks = std::function<void(size_t step, const Var&)>;  // called with every value when it is made
  // Leaves are moved by `distance` in their directions.
  Execution(Program program, const Scene& scene, double distance = 0, Asks asks = {});
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  // Runs the remaining steps; a Refusal if Weft refuses one. Then the program may be replaced by one that begins alike,
  // and run again.
  void run();
  void replace(Program program);
  Var term(const Term& term);  // its value
  Var loss();

  Tape& tape() { return tape_; }
  Training& training() { return training_; }
  const Program& program() const { return program_; }
  const Layout& layout(size_t step) const { return layouts_[step]; }
  const Var& value(size_t step) { return finished(slots_[step], step); }
  const std::vector<int>& leaves() const { return leaves_; }  // steps
  std::vector<Var> leaf_values();
  Tensor gradient_of_leaf(const Gradients& gradients, size_t leaf);
  // Whether the tape knows the groups of a partition.
  bool knows(int partition) const { return known_[static_cast<size_t>(partition)]; }

 private:
  struct Slot {
    Var value;
    std::optional<Started> started;
  };
  using Slots = std::vector<Slot>;

  const StepKind& kind(size_t step) const { return step_kinds()[static_cast<size_t>(program_.steps[step].kind)]; }
  void run_step(size_t step, Slots& slots);
  void run_piece(size_t first, size_t last);
  Vars run_inside(size_t first, size_t last, const std::vector<int>& inputs, const std::vector<int>& outputs,
                  std::span<const Var> values);
  size_t end_of_piece(size_t first) const;
  Var complete(size_t step, const Var& result) const;  // scaled
  const Var& finished(Slot& slot, size_t step);        // waited for
  Call call_of(size_t step, Slots& slots);
  Tensor data_of(size_t step) const;
  const Parameter& parameter_of(size_t step);
  int rank() const { return scene_.world().rank().value; }

  Training training_;  // outlives the tape
  Program program_;
  const Scene& scene_;
  const double distance_;
  const Asks asks_;
  std::vector<Layout> layouts_;
  std::map<uint32_t, Parameter> parameters_;  // by dice
  std::vector<bool> known_;
  std::vector<int> leaves_;
  size_t done_ = 0;
  Tape tape_;
  Slots slots_;
};

}  // namespace weft::random_programs
