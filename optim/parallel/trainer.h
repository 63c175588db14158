// SPDX-License-Identifier: Apache-2.0
#pragma once
// The common interface of DataParallel and Sharded, so that a program can choose between them at run time:
//
//   const std::unique_ptr<Trainer> training = make_trainer(groups, comm, {.stage = stage});  // make_trainer.h
//   Layer& encoder = training->layer("encoder", *network.encoder);
//   ...
//   tape.backward(loss, training->gradients());  any number of times; each rank's loss is its share of the whole
//   training->step(rate, 1.0);
//
// Groups may have different rules, and their parameters different types; all share one backward, one norm and one step.
// Every rank must make all calls except `gradients` and `optimizers`.
#include <limits>

#include "weft/engine/nn/module.h"
#include "weft/optim/parallel/bundle.h"

namespace weft {

class Trainer {
 public:
  virtual ~Trainer() = default;
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Returns the layer to call from now on: the layer itself, or a unit whose parameters are gathered while it runs.
  virtual Layer& layer(const std::string& name, Layer& layer) = 0;
  // Returns a parameter for use outside of a layer.
  virtual Var watch(Tape& tape, Parameter& parameter) = 0;

  // The destination of backward. It refuses a parameter of no group: freeze it on the tape (Tape::Freeze), or let
  // several trainings share a backward: Gradients both({&first.gradients(), &second.gradients()}).
  Gradients& gradients() { return bundles_.size() > 1 ? all_gradients_ : bundles_[0]->gradients(); }
  // The coming backward is this rank's last before the step, so reductions may start during it.
  void expect_last_pass();
  // This rank's term of the gradient of `loss` with respect to a parameter of a layer. Like Tape::gradient, it does not
  // accumulate.
  virtual Tensor gradient(const Var& loss, const Parameter& wrt) = 0;

  // Updates the parameters, with gradients scaled down if their norm is above `max_norm`. Returns the norm, or zero if
  // no norm was needed. On a card, the host waits in a step only for norms (clipping, LARS, LAMB, Adafactor).
  double step(double rate, double max_norm = std::numeric_limits<double>::infinity());
  // The optimizers' part of a step alone, for a StepGraph, which has the gradients from the step that it captured.
  void update(double rate, double gradient_scale = 1);
  // The first half of a step. The caller may then read or change the gradients before step().
  void reduce();
  double norm();  // of all gradients together
  // The sum over all ranks, after `reduce`: in the parameter's shape or, if sums are divided among ranks, this rank's
  // elements of it. Undefined if no rank had a gradient. The step uses the values that are written to it, which must be
  // equal on all ranks.
  Tensor reduced(const Parameter& parameter);
  void discard();  // drops the gradients accumulated for the coming step

  // Reads or sets all values of a parameter. New values must be equal on every rank.
  virtual Tensor whole(const Parameter& parameter) const = 0;
  virtual void set(const Parameter& parameter, const Tensor& whole) = 0;
  // Shows to all ranks what each has written between two steps to the values of the range that its optimizer owns.
  void publish();
  // Lets `f` change a parameter's values between two steps, equally on every rank.
  void change(Parameter& parameter, const std::function<void()>& f);

  // One for each type of parameters and each set of ranks over which gradients are summed, for checkpoints and
  // averages.
  const std::vector<Optimizer*>& optimizers() const { return optimizers_; }
  Optimizer& optimizer() const;  // Error if there are several

 protected:
  Trainer() = default;
  void add(std::unique_ptr<Bundle> bundle);
  Bundle& bundle(size_t i) const { return *bundles_[i]; }
  // The bundle and the place of a parameter.
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
