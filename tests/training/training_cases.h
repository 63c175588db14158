// SPDX-License-Identifier: Apache-2.0
#pragma once
// Programs of training, each written once for any number of ranks, and the ways to run them, all of which must take the
// parameters to the same place.
#include <functional>
#include <limits>
#include <memory>

#include "weft/engine/nn/module.h"
#include "weft/optim/parallel/data_parallel.h"

namespace weft {

// What a program has for a step. The samples of step t are the same however many ranks there are, and are divided
// unevenly: some ranks have none in some steps.
struct Step {
  int64_t number;
  int64_t samples;      // of all ranks
  int64_t first, rows;  // this rank's
  Communicator& comm;
  Gradients& gradients;
  std::function<void(Tape&)> begin;                             // for every new tape
  std::function<void()> last;                                   // before the last backward of this rank
  std::function<Var(Layer&, const Var&, const Pass&)> through;  // a layer, whose parameters may be divided (stage 3)

  Tensor draws(const Shape& each, int use = 0) const;  // a row of random values for each of this rank's samples
  Tensor labels(int64_t classes) const;
};

Step training_step(int64_t number, Communicator& comm, Gradients& gradients);

struct Program : Module {
  virtual void step(const Step& step) = 0;
  // The same mathematics on one process, as plainly as it can be written.
  virtual void whole(const Step& step) { this->step(step); }
};

struct TrainingCase {
  std::string name;
  std::function<std::unique_ptr<Program>(Communicator* group)> make;  // no group: for one process
  Rule rule = Sgd{.momentum = 0.9};
  double rate = 0.05;
  double max_norm = std::numeric_limits<double>::infinity();
  bool in_step = true;   // ranks make the same backward passes
  bool one_pass = true;  // and in a step only one
  bool queries = false;  // asks for gradients by parameters, or through them, on the way
  bool layers = false;   // parameters are used in Step::through only
  bool unused = false;   // some parameters, by all ranks

  std::vector<ParameterGroup> groups(const Program& program) const {
    return {{.parameters = program.parameters(), .rule = rule, .unused_steps = unused ? 0 : 10}};
  }
};
const std::vector<TrainingCase>& training_cases();
const TrainingCase& training_case(const std::string& name);

// What the parameters, and the buffers, are after so many steps.
using Weights = std::vector<Tensor>;
constexpr int64_t training_steps = 20;
Weights trained_alone(const TrainingCase& c);  // on one process with the whole batch, by a tape and an optimizer
Weights trained(const TrainingCase& c, Communicator& comm, const DataParallel::Options& options = {});
Weights trained_by_tape(const TrainingCase& c, Communicator& comm);    // by replicate(): in_step cases only
Weights trained_in_shards(const TrainingCase& c, Communicator& comm);  // by Sharded, which is stage 3: layers only

// The largest, relative to the largest element of its tensor.
double difference(const Weights& actual, const Weights& expected);
// On any rank.
double worst(double mine, Communicator& comm);

}  // namespace weft
