// SPDX-License-Identifier: Apache-2.0
#pragma once
// A training that can stop and resume elsewhere: parameters that straddle ranks, a layer without a gradient in every
// other step, batch statistics, dropout, shuffled data, a decreasing rate and weight averages.
#include <memory>

#include "tests/support/on_ranks.h"
#include "weft/collectives/nn/distributed_batch_norm.h"
#include "weft/data/batches.h"
#include "weft/data/files/checkpoint.h"
#include "weft/engine/nn/dropout_layer.h"
#include "weft/engine/nn/linear.h"
#include "weft/engine/ops/reduce.h"
#include "weft/optim/parallel/data_parallel.h"
#include "weft/optim/parallel/sharded.h"
#include "weft/optim/state.h"

namespace weft {

struct ResumeSetup {
  static constexpr int alone = -1;  // an optimizer without a trainer
  int stage = 0;
  DType dtype = DType::f64;
  Rule rule = AdamW{.weight_decay = 0.1};
  int64_t width = 300;
  uint64_t seed = 5;
  bool averages() const { return stage < 3; }
};

class ResumeRun {
 public:
  ResumeRun(Communicator& comm, const ResumeSetup& setup);

  void step();
  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }
  void save(const std::filesystem::path& folder);
  bool load(const std::filesystem::path& folder);  // false if there was no checkpoint

  // This rank's part of the state.
  NamedTensors local();
  // The full state, read and set without TrainingState; every rank has it at stage 0.
  NamedTensors whole();
  void set_whole(const NamedTensors& whole, const Metadata& words);
  Metadata words() const;
  void set(const Metadata& words);

  TrainingState& state() { return *state_; }
  Optimizer& optimizer();
  Sharded* sharded() { return sharded_.get(); }
  WeightAverage* average() { return average_.get(); }
  std::vector<Parameter*> parameters() const;
  std::vector<Parameter*> buffers() const { return norm_.buffers(); }

 private:
  Var through(Layer& layer, const Var& x, const Pass& pass);
  Var loss(Tape& tape);
  Gradients& gradients();
  void descend(double rate);

  Communicator& comm_;
  const ResumeSetup setup_;
  const Init init_;
  Linear first_, rare_;
  DistributedBatchNorm norm_;
  Dropout dropout_;
  Linear last_;
  Gradients gradients_;  // for an optimizer without a trainer
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<DataParallel> parallel_;
  std::unique_ptr<Sharded> sharded_;
  std::unique_ptr<WeightAverage> average_;
  std::unique_ptr<TrainingState> state_;
  Batches batches_;
  uint64_t seed_;
  int64_t step_ = 0;
};

// Whether names and bits are equal.
void expect_same(const NamedTensors& actual, const NamedTensors& expected, Site site = Site::here());

// Expects 2 * `half` steps to equal `half` steps, a file and `half` more, in the run that saved and in a fresh one.
void expect_undisturbed(Communicator& comm, ResumeSetup setup, int half, const std::filesystem::path& folder);

}  // namespace weft
