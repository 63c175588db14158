#pragma once
// What DataParallel and Sharded have in common, so that a program may choose between them when it runs:
//
//   const std::unique_ptr<Trainer> training = make_trainer(groups, comm, {.stage = stage});  // make_trainer.h
//   Layer& encoder = training->layer("encoder", *network.encoder);
//   ...
//   tape.backward(loss, training->gradients());  any number of times; each rank's loss is its share of the whole
//   training->step(rate, 1.0);
//
// Groups may have different rules and their parameters different types: all share one backward, one norm and one step.
// All calls but `gradients` and `optimizers` are made on every rank.
#include <limits>

#include "engine/nn/module.h"
#include "optim/bundle.h"

namespace weft {

class Trainer {
 public:
  virtual ~Trainer() = default;
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // A layer as it is to be called from here on: itself, or a unit whose parameters are gathered while it is at work.
  virtual Layer& layer(const std::string& name, Layer& layer) = 0;
  // A parameter as it is to be used outside of a layer.
  virtual Var watch(Tape& tape, Parameter& parameter) = 0;

  // Where backward puts gradients. A parameter of no group is refused: freeze it on the tape (Tape::Freeze), or let
  // several trainings share a backward: Gradients both({&first.gradients(), &second.gradients()}).
  Gradients& gradients() { return bundles_.size() > 1 ? all_gradients_ : bundles_[0]->gradients(); }
  void expect_last_pass();  // the coming backward is this rank's last before the step: reductions may begin during it
  // A question, as Tape::gradient: this rank's term of the gradient of `loss` by a parameter of a layer.
  virtual Tensor gradient(const Var& loss, const Parameter& by) = 0;

  // Updates the parameters, by gradients that are scaled if their norm is above `most_norm`. Returns the norm, or zero
  // where nothing had to be measured. Norms (clipping, LARS, LAMB, Adafactor) are the one thing for which the host
  // waits in a step on a card.
  double step(double rate, double most_norm = std::numeric_limits<double>::infinity());
  // The first half of a step, for a look at the gradients, or a change, before the second.
  void reduce();
  double norm();  // of all gradients together
  // The sum over all ranks, after `reduce`: in the parameter's shape, or, where the sums are divided among ranks, this
  // rank's elements of it. Undefined if no rank had a gradient. What is written to it, on every rank alike, is what the
  // step takes.
  Tensor reduced(const Parameter& parameter);
  void discard();  // forgets what has been accumulated for the coming step

  // A parameter's values, of all of it, and new ones, the same on every rank.
  virtual Tensor whole(const Parameter& parameter) const = 0;
  virtual void set(const Parameter& parameter, const Tensor& whole) = 0;
  // Lets `f` change a parameter's values, on every rank alike, between two steps.
  void change(Parameter& parameter, const std::function<void()>& f);

  // One for each type of parameters and each set of ranks that gradients are summed over, for checkpoints and averages.
  const std::vector<Optimizer*>& optimizers() const { return optimizers_; }
  Optimizer& optimizer() const;  // where there is but one

 protected:
  Trainer() = default;
  void add(std::unique_ptr<Bundle> bundle);
  Bundle& bundle(size_t i) const { return *bundles_[i]; }
  // Where a parameter lies.
  struct Home {
    size_t bundle;
    int64_t place;
    auto operator<=>(const Home&) const = default;
  };
  Home home_of(const Parameter& parameter) const;

 private:
  std::vector<std::unique_ptr<Bundle>> bundles_;
  std::vector<Optimizer*> optimizers_;
  Gradients all_gradients_;  // of several bundles
  bool is_reduced_ = false;
};

}  // namespace weft
