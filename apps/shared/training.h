#pragma once
// How the programs train, whatever --zero, --accumulate and --fast-reductions say.
//
// In the usual way every bit of the result is the same on any number of ranks: a batch is cut into blocks of samples,
// of which each rank has some, and the blocks' gradients are added exactly (optim/exact_gradients.h). What spans the
// batch, a contrastive loss, every rank computes by itself of everybody's features. With --fast-reductions a rank has
// one block, losses are divided among ranks, and sums are taken as they come: less work for each rank, and results that
// differ between numbers of ranks by rounding. So they do with --zero 3, where parameters are divided, too.
#include <span>

#include "apps/shared/launch.h"
#include "optim/cached.h"
#include "optim/exact_gradients.h"
#include "optim/state.h"

namespace weft {

class Training {
 public:
  Training(const std::vector<ParameterGroup>& groups, const Launch& rank, const Options& options);

  // A layer as it is to be called: itself, or a unit of divided parameters. Not to be called from two threads.
  Layer& layer(const std::string& name, Layer& layer) { return trainer_->layer(name, layer); }

  // This rank's part of a batch.
  class Part {
   public:
    int64_t blocks() const {
      return static_cast<int64_t>(begins_.size()) - 1;
    }                                                                           // on every rank as many; some are empty
    std::span<const int64_t> block(int64_t i) const;                            // the samples' global numbers
    int64_t first(int64_t i) const { return begins_[static_cast<size_t>(i)]; }  // the place of its first in the batch
    double weight(int64_t i) const { return weights_[static_cast<size_t>(i)]; }  // of the batch, in a `block_group`
    const Rows& rows() const { return rows_; }                                   // samples of each rank
    int64_t total() const { return static_cast<int64_t>(batch_.size()); }

   private:
    friend class Training;
    std::span<const int64_t> batch_;
    std::vector<int64_t> begins_;  // of each block, and after the last
    std::vector<double> weights_;
    Rows rows_;
  };
  Part part(std::span<const int64_t> batch) const;

  // Where backward puts a block's gradients. They are of the whole batch, so a loss is divided by its samples.
  Gradients& gradients() { return exact_ ? exact_->gradients() : trainer_->gradients(); }
  // A loss of all samples' features at once, given this rank's: its share. `loss` gets the features it is to be
  // computed of, and the group that has them.
  using BatchLoss = std::function<Var(const Features& features, Communicator& group)>;
  Var over_batch(const Features& mine, const Part& part, const BatchLoss& loss);
  // cached_backward (optim/cached.h) of the blocks of a part. With WEFT_DEBUG=1 the ranks compare what happens on every
  // tape, as a program does by debug_if_asked on a tape of its own.
  Tensor backward(const Part& part, const Encode& encode, const FeatureLoss& loss, Between keep);
  // Who computes the loss of a block, where this asks for a group, as a quantizer's does: each block by itself, or all
  // ranks, which have a block each. It is the mean over what they have, so it is to be multiplied by `Part::weight`.
  Communicator& block_group() { return exact_ ? alone_ : comm_; }
  // A question that changes nothing, as Tape::gradient: of a block's loss, by a parameter in a layer. The sum of the
  // answers of all blocks and ranks is the gradient of the whole batch.
  Tensor gradient(const Var& loss, const Parameter& by) { return trainer_->gradient(loss, by); }
  // A parameter of such a loss.
  Var watch(Tape& tape, Parameter& parameter);

  void step(double rate);  // with WEFT_DEBUG=1 all ranks must have the same parameters before it
  // After a step: `f` may change this parameter's values, on every rank alike.
  void change(Parameter& parameter, const std::function<void()>& f) { trainer_->change(parameter, f); }
  Optimizer& optimizer() { return trainer_->optimizer(); }
  bool exact() const { return exact_ != nullptr; }

 private:
  Communicator& comm_;
  Communicator alone_;
  const std::vector<Parameter*> parameters_;
  const int64_t blocks_;  // of a batch, or of this rank where nothing is exact
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<ExactGradients> exact_;
};

}  // namespace weft
