// SPDX-License-Identifier: Apache-2.0
#pragma once
// Data parallelism: all ranks train the same parameters, each on its own data. However work and memory are divided, the
// resulting parameters are those of one process with all the data.
//
//   DataParallel training({{network.parameters(), AdamW{}}}, comm, {.stage = 1});
//   ...
//   tape.backward(loss, training.gradients());     any number of times; each rank's loss is its share of the whole
//   training.step(rate);
//
//   stage   each rank holds                                              (Zero Redundancy Optimizer, arXiv 1910.02054)
//   0       all parameters, their gradients and the optimizer's state
//   1       all parameters and local gradients; its part of the summed gradients and of the optimizer's state
//   2       the same, but local gradients are freed as soon as they are summed
//
// In stage 3 the parameters are divided, too (sharded.h). On one node, the parameters of stages 1 and 2 are one block
// of memory: all ranks read it, and each writes its part. On several nodes, an all_gather follows every step.
#include "weft/optim/parallel/sync.h"
#include "weft/optim/parallel/trainer.h"

namespace weft {

class DataParallel final : public Trainer {
 public:
  struct Options {
    int stage = 0;
    GradientSync::When when = GradientSync::When::at_finish;
    int64_t bucket = int64_t{1} << 20;  // elements
  };
  // Parameters must be equal on all ranks, except those of layers that a group of ranks divides. Such ranks of a grid
  // train the divided layer together with all other layers, over all ranks of the grid.
  DataParallel(const std::vector<ParameterGroup>& groups, Communicator& comm, Options options);
  DataParallel(const std::vector<ParameterGroup>& groups, Communicator& comm) : DataParallel(groups, comm, Options()) {}

  GradientSync& sync(size_t bundle = 0);  // one for each optimizer

  Layer& layer(const std::string&, Layer& layer) override { return layer; }
  Var watch(Tape& tape, Parameter& parameter) override { return tape.watch(parameter); }
  Tensor gradient(const Var& loss, const Parameter& wrt) override;
  Tensor whole(const Parameter& parameter) const override { return parameter.value; }
  void set(const Parameter& parameter, const Tensor& whole) override;

 private:
  class Replica;
};

}  // namespace weft
