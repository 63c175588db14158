// SPDX-License-Identifier: Apache-2.0
#pragma once
// Training programs, each written once for any number of ranks, and several ways to run them, all of which must give
// the same parameters.
#include <functional>
#include <limits>
#include <memory>

#include "weft/engine/nn/module.h"
#include "weft/optim/parallel/data_parallel.h"

namespace weft {

// A step's input. The samples of step t do not depend on the number of ranks, and are divided unevenly: some ranks have
// none in some steps.
struct Step {
  int64_t number;
  int64_t samples;      // of all ranks
  int64_t first, rows;  // this rank's
  Communicator& comm;
  Gradients& gradients;
  std::function<void(Tape&)> begin;                             // called for every new tape
  std::function<void()> last;                                   // called before this rank's last backward
  std::function<Var(Layer&, const Var&, const Pass&)> through;  // applies a layer, perhaps sharded (stage 3)

  Tensor draws(const Shape& each, int use = 0) const;  // a row of random values for each of this rank's samples
  Tensor labels(int64_t classes) const;
};

Step training_step(int64_t number, Communicator& comm, Gradients& gradients);

struct Program : Module {
  virtual void step(const Step& step) = 0;
  // The same mathematics on one process, written as plainly as possible.
  virtual void whole(const Step& step) { this->step(step); }
};

struct TrainingCase {
  std::string name;
  std::function<std::unique_ptr<Program>(Communicator* group)> make;  // null: one process
  Rule rule = Sgd{.momentum = 0.9};
  double rate = 0.05;
  double max_norm = std::numeric_limits<double>::infinity();
  bool in_step = true;   // ranks run the same backward passes
  bool one_pass = true;  // with only one pass per step
  bool queries = false;  // makes gradient queries for parameters or recorded gradients
  bool layers = false;   // uses parameters in Step::through only
  bool unused = false;   // some parameters are used by no rank

  std::vector<ParameterGroup> groups(const Program& program) const {
    return {{.parameters = program.parameters(), .rule = rule, .unused_steps = unused ? 0 : 10}};
  }
};
const std::vector<TrainingCase>& training_cases();
const TrainingCase& training_case(const std::string& name);

// Parameters and buffers after the last step.
using Weights = std::vector<Tensor>;
constexpr int64_t training_steps = 20;
Weights trained_alone(const TrainingCase& c);  // on one process with the whole batch, with a tape and an optimizer
Weights trained(const TrainingCase& c, Communicator& comm, const DataParallel::Options& options = {});
Weights trained_by_tape(const TrainingCase& c, Communicator& comm);    // with replicate(): in_step cases only
Weights trained_in_shards(const TrainingCase& c, Communicator& comm);  // with Sharded (stage 3): `layers` cases only

// The largest difference, relative to the largest element of its tensor.
double difference(const Weights& actual, const Weights& expected);
// The largest on any rank.
double worst(double mine, Communicator& comm);

}  // namespace weft
