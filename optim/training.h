// SPDX-License-Identifier: Apache-2.0
#pragma once
// The steps of a training whose loss spans the samples of all ranks. Every rank knows the numbers of all samples of a
// batch, and takes its part:
//
//   Training training({{network.parameters(), AdamW{}}}, comm, {.stage = 1});
//   Layer& encoder = training.layer("encoder", *network.encoder);
//   ...
//   const LocalBatch batch = training.local_batch(batches.next());
//   const auto encode = [&](Tape& tape, std::span<const int64_t> samples) -> Features {
//     return {encoder(tape.constant(images_of(samples))), ...};
//   };
//   const auto loss = [&](const Features& views, Communicator& group) {
//     return nt_xent(views[0], views[1], {}, group);
//   };
//   const Tensor share = training.backward(batch, encode, loss);
//   training.step(rate);
//
// A step has one tape, from the samples through the encoder and the collectives of the loss. Gradients are summed in a
// fixed order: a run is bit-identical on the same number of ranks, as threads or processes. If there are several
// micro-batches, each has a tape, and the loss of all their features has another (accumulate/cached.h).
//
// With `same_bits` a run is bit-identical on any number of ranks. A batch is then cut into the same blocks on every
// number of ranks, their gradients are added exactly (accumulate/exact_gradients.h), and every rank computes the loss
// of the whole batch from the features of all ranks.
#include <optional>
#include <span>

#include "weft/collectives/checks/tape_table.h"
#include "weft/optim/accumulate/cached.h"
#include "weft/optim/accumulate/exact_gradients.h"
#include "weft/optim/average.h"
#include "weft/optim/parallel/trainer.h"

namespace weft {

// Samples that are encoded together.
struct MicroBatch {
  std::span<const int64_t> samples;  // their global numbers
  int64_t first;                     // the place of the first in the batch
  double weight;                     // the fraction of the batch in it, over Training::micro_batch_group
};

// This rank's part of a batch.
struct LocalBatch {
  std::vector<MicroBatch> micro_batches;  // the same number on every rank; some may be empty
  Rows rows;                              // samples of each rank
  int64_t total;                          // samples of all ranks
};

class Training {
 public:
  struct Options {
    int64_t stage = 0;       // of ZeRO: 0 to 2 are a DataParallel, 3 is a Sharded
    int64_t accumulate = 1;  // micro-batches of each rank in a step; with same_bits, of each block
    bool recompute = false;  // `backward` encodes micro-batches again, in the memory of one
    bool same_bits = false;  // with stage 0 to 2
    double average = 0;      // decay of an average of the weights over the steps, with stage 0 to 2; 0: none
  };
  // `record` gets the tapes of its steps, if there is one.
  Training(const std::vector<ParameterGroup>& groups, Communicator& comm, const Options& options,
           TapeRecord* record = nullptr);

  // The layer to call in place of `layer`: itself, or at stage 3 a unit that gathers its parameters. Not thread-safe.
  Layer& layer(const std::string& name, Layer& layer) { return trainer_->layer(name, layer); }

  LocalBatch local_batch(std::span<const int64_t> batch) const;  // refers to `batch`

  // Backward through a loss that spans all samples of the batch, such as a contrastive one. `encode` returns features
  // of some samples. `loss` returns this rank's share of the loss of the features that the ranks of `group` have
  // together. Returns that share. Every tape is begun as by `begin`.
  using SampleFeatures = std::function<Features(Tape& tape, std::span<const int64_t> samples)>;
  using BatchLoss = std::function<Var(const Features& features, Communicator& group)>;
  Tensor backward(const LocalBatch& batch, const SampleFeatures& encode, const BatchLoss& loss);
  // The loss of a batch without gradients, for one that is not trained: the same on every rank, and on any number of
  // ranks, since every rank computes all of it from the features of all.
  double evaluate(const LocalBatch& batch, const SampleFeatures& encode, const BatchLoss& loss);
  // A parameter of such a loss, beside its features.
  Var watch(Parameter& parameter, const Var& features);

  // For a program's own backward through a micro-batch: its tape, before the first op, is checked if WEFT_DEBUG=1 asks
  // for it, as by debug_if_asked, and noted in the record.
  void begin(Tape& tape);
  // The destination of that backward. Its loss is divided by the samples of the whole
  // batch.
  Gradients& gradients() { return exact_ ? exact_->gradients() : trainer_->gradients(); }
  // The group that computes the loss of a micro-batch together, for losses that take a group, as a quantizer's does.
  // The loss is then a mean over the group's samples, and is to be multiplied by MicroBatch::weight.
  Communicator& micro_batch_group() { return exact_ ? alone_ : comm_; }
  // A query, as Tape::gradient: the gradient of a micro-batch's loss with respect to a parameter of a layer. Its sum
  // over all micro-batches and ranks is the gradient of the whole batch.
  Tensor gradient(const Var& loss, const Parameter& wrt) { return trainer_->gradient(loss, wrt); }

  // Gradients whose norm is above `max_norm` are scaled down. Returns that norm if it was needed for this, or if `norm`
  // asks for it. With WEFT_DEBUG=1 checks first that all ranks have the same parameters.
  enum class Norm : uint8_t { if_needed, always };
  std::optional<double> step(double rate, double max_norm = std::numeric_limits<double>::infinity(),
                             Norm norm = Norm::if_needed);
  // What is left of a step to a host whose card repeats the rest (engine/kernels/step_graph.h).
  void renew(double rate);
  // After a step: `f` may change this parameter's values, on every rank alike.
  void change(Parameter& parameter, const std::function<void()>& f) { trainer_->change(parameter, f); }
  Optimizer& optimizer() { return trainer_->optimizer(); }
  WeightAverage* average() { return average_.get(); }  // for a TrainingState; null if there is none
  // Calls `f` while the parameters have the values of their averages, if there are any.
  void averaged(const std::function<void()>& f);

 private:
  void follow();
  Var loss_of_gathered(const Features& mine, const Rows& rows, const BatchLoss& loss);

  Communicator& comm_;
  Communicator alone_;
  const Options options_;
  TapeRecord* const record_;
  const std::vector<Parameter*> parameters_;  // those that every rank holds
  const int64_t pieces_;                      // of a batch, over all ranks
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<ExactGradients> exact_;  // with same_bits
  std::unique_ptr<WeightAverage> average_;
};

}  // namespace weft
