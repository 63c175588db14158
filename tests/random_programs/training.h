// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parameters of a program that a trainer holds, at any stage of ZeRO: alone, in layers, and in layers that a group
// divides by features.
#include <map>
#include <memory>

#include "weft/optim/parallel/make_trainer.h"

namespace weft::random_programs {

class Training {
 public:
  enum class Use : uint8_t { alone, layer, divided_layer };
  struct Part {
    Use use;
    uint32_t dice;                  // of the step that uses it
    Communicator* group = nullptr;  // of a divided layer
  };
  // Parameters are moved by `distance` in their directions. Every rank makes this together.
  Training(const std::vector<Part>& parts, int stage, Communicator& world, double distance = 0);
  ~Training();

  bool active() const { return trainer_ != nullptr; }
  Gradients& gradients() { return trainer_->gradients(); }
  // The groups over which the gradients of divided layers are summed: the ranks with the same slices.
  const std::vector<std::unique_ptr<Communicator>>& across() const { return across_; }
  Var watch(Tape& tape, uint32_t dice);
  Var apply(const Var& x, uint32_t dice);

  // What a step of rate 1 subtracts: the gradients of all parameters, summed over ranks.
  std::vector<double> step();
  // For the same elements, the direction in which they are moved; zeros where another rank counts the element.
  std::vector<double> directions() const;

 private:
  struct Entry {
    Parameter* parameter;
    Tensor direction;
    bool counts;  // whether this rank counts it, of those that hold it
  };
  void add(Parameter& parameter, uint32_t key, const Communicator& world, double distance);

  std::map<uint32_t, Parameter> alone_;  // by dice
  std::map<uint32_t, std::unique_ptr<Layer>> layers_;
  std::map<uint32_t, Layer*> units_;  // what the trainer makes of the layers
  std::vector<Entry> entries_;
  std::vector<std::unique_ptr<Communicator>> across_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace weft::random_programs
