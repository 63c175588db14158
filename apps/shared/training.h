#pragma once
// How the programs train, whatever --zero, --accumulate, --same-bits and --fast-reductions say:
//
//   Training training({{network.parameters(), AdamW{}}}, rank, options);
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
// By default a rank has its samples in one piece, or in --accumulate of them. The loss spans the ranks by collectives
// on the tape, so its backward is a reduce_scatter, and gradients are summed in the order of the ranks: a run repeats
// its bits on as many ranks, wherever they are. With --same-bits they do not depend on the number of ranks either. A
// batch is then cut into the same blocks on any number of ranks, the blocks' gradients are added exactly
// (optim/exact_gradients.h), and every rank computes the loss of the whole batch from all ranks' features.
#include <span>

#include "apps/shared/launch.h"
#include "optim/cached.h"
#include "optim/exact_gradients.h"
#include "optim/state.h"

namespace weft {

// Samples that are encoded together.
struct MicroBatch {
  std::span<const int64_t> samples;  // their global numbers
  int64_t first;                     // the place of the first in the batch
  double weight;                     // what its group (Training::micro_batch_group) has of the batch, from 0 to 1
};

// This rank's part of a batch.
struct LocalBatch {
  std::vector<MicroBatch> micro_batches;  // on every rank as many; some may be empty
  Rows rows;                              // samples of each rank
  int64_t total;                          // samples of all ranks
};

class Training {
 public:
  Training(const std::vector<ParameterGroup>& groups, const Launch& rank, const Options& options);

  // A layer as it is to be called: itself, or a unit of divided parameters. Not to be called from two threads.
  Layer& layer(const std::string& name, Layer& layer) { return trainer_->layer(name, layer); }

  LocalBatch local_batch(std::span<const int64_t> batch) const;  // refers to the batch

  // Backward through a loss of all samples at once, such as a contrastive one. `encode` makes features of some samples,
  // `loss` a share of the loss of what features it is given, which `group` divides. Returns this rank's share. With
  // Between::features micro-batches are encoded again in backward (optim/cached.h). With WEFT_DEBUG=1 the ranks compare
  // what happens on every tape, as a program does by debug_if_asked on a tape of its own.
  using SampleFeatures = std::function<Features(Tape& tape, std::span<const int64_t> samples)>;
  using BatchLoss = std::function<Var(const Features& features, Communicator& group)>;
  Tensor backward(const LocalBatch& batch, const SampleFeatures& encode, const BatchLoss& loss,
                  Between keep = Between::tapes);
  // A parameter of such a loss, beside its features.
  Var watch(Parameter& parameter, const Var& features);

  // Where a program's own backward through a micro-batch puts gradients. They are of the whole batch, so a loss is
  // divided by its samples.
  Gradients& gradients() { return exact_ ? exact_->gradients() : trainer_->gradients(); }
  // The ranks that compute the loss of a micro-batch together, where it asks for a group, as a quantizer's does. It is
  // the mean over what they have, so it is to be multiplied by MicroBatch::weight.
  Communicator& micro_batch_group() { return exact_ ? alone_ : comm_; }
  // A question that changes nothing, as Tape::gradient: of a micro-batch's loss, with respect to a parameter in a
  // layer. The sum of the answers of all micro-batches and ranks is the gradient of the whole batch.
  Tensor gradient(const Var& loss, const Parameter& wrt) { return trainer_->gradient(loss, wrt); }

  void step(double rate);  // with WEFT_DEBUG=1 all ranks must have the same parameters before it
  // After a step: `f` may change this parameter's values, on every rank alike.
  void change(Parameter& parameter, const std::function<void()>& f) { trainer_->change(parameter, f); }
  Optimizer& optimizer() { return trainer_->optimizer(); }

 private:
  Var loss_of_gathered(const Features& mine, const Rows& rows, const BatchLoss& loss);

  Communicator& comm_;
  Communicator alone_;
  const std::vector<Parameter*> parameters_;  // that every rank has
  const int64_t pieces_;                      // of a batch, over all ranks
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<ExactGradients> exact_;  // with --same-bits
};

}  // namespace weft
