#pragma once
// Training with the same parameters on several ranks, each of which sees its own data. However the work and the memory
// are divided, the parameters end up where one process with all the data would have put them.
//
//   DataParallel training({{network.parameters(), AdamW{}}}, comm, {.stage = 1});
//   ...
//   tape.backward(loss, training.gradients());     any number of times; each rank's loss is its share of the whole
//   training.step(rate);
//
//   stage   each rank holds                                              (Zero Redundancy Optimizer, arXiv 1910.02054)
//   0       all parameters, their gradients and the optimizer's state
//   1       all but the state and the summed gradients, of which it has and updates its part
//   2       its part of the gradients, too: local ones are given up as soon as they are summed
//
// Stage 3, where the parameters are divided as well, is sharded.h. On one node the parameters of stages 1 and 2 are one
// block of memory that all ranks read, and each writes its part of; elsewhere they are gathered after every step.
#include "optim/sync.h"
#include "optim/trainer.h"

namespace weft {

class DataParallel final : public Trainer {
 public:
  struct Options {
    int stage = 0;
    GradientSync::When when = GradientSync::When::at_finish;
    int64_t bucket = int64_t{1} << 20;  // elements
  };
  // Parameters equal on all ranks, but where a layer's placement says otherwise: ranks of a grid that divide a layer
  // train it together with all other layers, over all ranks of the grid.
  DataParallel(const std::vector<ParameterGroup>& groups, Communicator& comm, Options options);
  DataParallel(const std::vector<ParameterGroup>& groups, Communicator& comm) : DataParallel(groups, comm, Options()) {}

  GradientSync& sync(size_t bundle = 0);  // of each optimizer's gradients

  Layer& layer(const std::string&, Layer& layer) override { return layer; }
  Var watch(Tape& tape, Parameter& parameter) override { return tape.watch(parameter); }
  Tensor gradient(const Var& loss, const Parameter& by) override;
  Tensor whole(const Parameter& parameter) const override { return parameter.value; }
  void set(const Parameter& parameter, const Tensor& whole) override;

 private:
  class Replica;
};

}  // namespace weft
