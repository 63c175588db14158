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
#include <limits>

#include "optim/optimizer.h"
#include "optim/sync.h"

namespace weft {

class DataParallel {
 public:
  struct Options {
    int stage = 0;
    GradientSync::When when = GradientSync::When::at_finish;
    int64_t bucket = int64_t{1} << 20;  // elements
  };
  // Parameters of one dtype and device, equal on all ranks.
  DataParallel(const std::vector<ParameterGroup>& groups, Communicator& comm, Options options);
  DataParallel(const std::vector<ParameterGroup>& groups, Communicator& comm) : DataParallel(groups, comm, Options()) {}

  Gradients& gradients() { return sync_.gradients(); }
  GradientSync& sync() { return sync_; }
  void expect_last_pass() { sync_.expect_last_pass(); }

  // Sums the gradients over the ranks, scales them if their norm is above `most_norm`, and updates the parameters.
  // Returns the norm, or zero where nothing had to be measured. Norms (clipping, LARS, LAMB) are the one thing
  // for which the host waits in a step on a card.
  double step(double rate, double most_norm = std::numeric_limits<double>::infinity());
  // Forgets what has been accumulated for the coming step.
  void discard() { sync_.clear(); }  // on every rank

  Optimizer& optimizer() { return optimizer_; }

 private:
  static FlatParameters lay_out(const std::vector<ParameterGroup>& groups, Communicator& comm, bool sharded,
                                bool& common);
  Share share();
  void spread_updates();

  Communicator& comm_;
  const bool sharded_;
  bool common_ = false;  // all ranks' parameters are the same memory
  FlatParameters parameters_;
  GradientSync sync_;
  Optimizer optimizer_;
};

}  // namespace weft
