// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parameters of a program that a trainer holds, at any stage of ZeRO, and the layers that are units of them.
#include <map>
#include <memory>

#include "weft/optim/parallel/make_trainer.h"

namespace weft::random_programs {

class Training {
 public:
  // Parameters that are used alone, and layers; both are named by the dice of their steps. Parameters are moved by
  // `distance` in their directions. Every rank makes this together.
  using Names = std::vector<uint32_t>;
  Training(const Names& alone, const Names& layers, int stage, Communicator& world, double distance = 0);
  ~Training();

  bool active() const { return trainer_ != nullptr; }
  Gradients& gradients() { return trainer_->gradients(); }
  Var watch(Tape& tape, uint32_t dice);    // the parameter of a step
  Var apply(const Var& x, uint32_t dice);  // the layer of a step

  // The gradients of all parameters, summed over ranks: what a step of rate 1 subtracts.
  std::vector<double> step();
  std::vector<double> directions() const;  // of the same elements

 private:
  class Layer;

  std::map<uint32_t, Parameter> alone_;
  std::map<uint32_t, Layer> layers_;
  std::map<uint32_t, weft::Layer*> units_;  // what the trainer makes of the layers
  std::vector<Parameter*> parameters_;
  Names keys_;  // of all parameters
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace weft::random_programs
