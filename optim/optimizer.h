// SPDX-License-Identifier: Apache-2.0
#pragma once
// Applies the update rules of rules.h to parameters in flat memory. Every group of parameters has its own rule and
// options. A rank may own only a range of the memory; it then keeps state for this range and updates nothing else.
//
//   Optimizer optimizer({{matrices, Muon{}}, {others, AdamW{.weight_decay = 0}, 0.1}});
//   ...
//   tape.backward(loss, gradients);
//   optimizer.step(gradients, rate, clip(optimizer.norm(gradients), 1));
//
// bf16 parameters are rounded copies of f32 master weights, which are state. A parameter without a gradient keeps its
// value, its state and its step count.
#include "weft/optim/adafactor.h"
#include "weft/optim/norms.h"
#include "weft/optim/rules.h"

namespace weft {

struct ParameterGroup {
  std::vector<Parameter*> parameters;
  Rule rule;
  double rate_scale = 1;
  // Step number `unused_steps` throws an Error if a parameter has had no gradient yet on any rank, because it is
  // probably part of no loss. The Error is thrown once, before that step, so a caller may catch it and continue. 0
  // allows parameters without gradients.
  int64_t unused_steps = 10;
};
std::vector<Parameter*> parameters_of(const std::vector<ParameterGroup>& groups);
// The layout for these rules: parameters with the same kinds of state are neighbours, and parameters that a step needs
// whole are indivisible.
FlatLayout layout_of(const std::vector<ParameterGroup>& groups);

class Optimizer {
 public:
  // Moves the parameters to flat memory of its own.
  explicit Optimizer(const std::vector<ParameterGroup>& groups);
  Optimizer(const std::vector<Parameter*>& parameters, const Rule& rule);
  // Parameters in the memory that are in no group are not updated.
  Optimizer(FlatParameters parameters, const std::vector<ParameterGroup>& groups);
  // This rank updates the elements `owned` only, which begin and end at multiples of 1024.
  Optimizer(FlatParameters parameters, const std::vector<ParameterGroup>& groups, Range owned, Combine combine = {});

  // The update multiplies gradients by `scale`, for clipping or a mean over ranks.
  void step(const Gradients& gradients, double rate, double scale = 1);
  // The same for gradients in flat memory: the owned range, zero where there is no parameter, of the parameters' type
  // or, for bf16 parameters, f32. `present` says for each place of the layout whether the parameter has a gradient on
  // any rank. Neighbours with equal scalars are updated together.
  void step(const Tensor& gradient, const std::vector<bool>& present, double rate, double scale = 1);

  // The check that begins a step, or the steps of several optimizers: adds the names of parameters that should have had
  // a gradient by now (unused_steps), and throws if there are any.
  void add_unused(const std::vector<bool>& present, std::string& names);
  static void expect_none_unused(const std::string& names);

  // The norm of all gradients together, over all ranks.
  double norm(const Gradients& gradients);
  double norm(const Tensor& gradient, const std::vector<bool>& present);

  const FlatParameters& parameters() const { return parameters_; }
  Range owned() const { return owned_; }
  const Tensor& values() const { return value_; }  // the owned range that steps update: values or master weights

  // The state that a checkpoint holds besides the values: for each parameter and slot the elements that this rank owns,
  // which begin at element `first` and may be none, as a view to be read or written. In addition, each parameter has a
  // number of steps. The list has the same entries on all ranks.
  struct State {
    std::string name;  // "adamw.m", "adamw.master"
    Parameter* parameter;
    int64_t first;
    Tensor values;
    Shape shape;                               // of the whole tensor, or of the slice that a group gives this rank
    std::shared_ptr<const Sharding> sharding;  // as of a parameter
  };
  std::vector<State> state();
  int64_t steps(const Parameter& parameter) const;
  void set_steps(const Parameter& parameter, int64_t steps);
  // Sets master weights to the values again, after other code has set the values: all of them, or those of one
  // parameter.
  void adopt_values();
  void adopt_values(const Parameter& parameter);

 private:
  static constexpr int64_t no_group = -1;
  struct Options {
    Rule rule;
    double rate_scale;
    int64_t unused_steps;
  };
  // Parameters with the same slots and kernel, and the part of flat memory from the first to the last of them that this
  // rank owns.
  struct Kind {
    std::string name;
    std::vector<std::string> slot_names;
    UpdateRule kernel;
    std::optional<UpdateRule> direction;
    bool factors;
    Range range;
    Tensor value = {}, rounded = {};
    std::vector<Tensor> slots = {};
  };
  // The gradients of a step: `by_parameter`, or else in flat memory.
  struct Source {
    const Gradients* by_parameter;
    const Tensor* flat;
    const std::vector<bool>* present;
  };
  // The part of a parameter with a gradient that this rank updates; it may be empty.
  struct Part {
    int64_t place;
    Range range;
    Tensor gradient;  // later replaced by the direction, if the rule has one
  };

  void add_group(const ParameterGroup& group);
  void add_to_kind(int64_t place);
  void make_state();
  void list(const Kind& kind, const std::string& slot, const Tensor& values, Range held, std::vector<State>& all) const;
  void list_factors(const Kind& kind, std::vector<State>& all) const;
  void collect(const Source& source);
  Part part_of(const Source& source, int64_t place) const;
  double norm(const Source& source);
  void step(const Source& source, double rate, double scale);
  template <class Numbers> void plan(const Kind& kind, const Tensor* flat, const Numbers& numbers);
  StepPoint point(const Part& part, double rate, double scale) const;
  void find_directions(Kind& kind, const Tensor* flat, double rate, double scale);
  void measure();

  template <class V> static auto& at(V& items, int64_t i) { return items[static_cast<size_t>(i)]; }
  const Place& place(int64_t i) const { return at(parameters_.layout().places(), i); }
  const Options& options(const Part& part) const { return at(options_, at(group_of_, part.place)); }
  bool is_of(const Kind& kind, const Part& part) const { return &at(kinds_, at(kind_of_, part.place)) == &kind; }
  bool owns(int64_t place) const;
  void adopt(Range range);
  template <class Present> void find_unused(const Present& present, std::string& names);
  Tensor owned_part(const Tensor& owned, Range range) const {
    return range.size() == 0 ? owned.slice(0, 0) : owned.slice(range.first - owned_.first, range.last - owned_.first);
  }

  FlatParameters parameters_;
  Range owned_;
  std::vector<Options> options_;
  std::vector<Kind> kinds_;
  std::vector<int64_t> group_of_, kind_of_, steps_;  // by place
  std::vector<Factors> factors_;                     // by place, for rules that keep factors
  bool adapts_ = false;
  int64_t calls_ = 0;       // of step()
  bool begun_ = false;      // add_unused() has begun the coming step
  Tensor value_, rounded_;  // the owned range: the updated values, and their bf16 copy
  Norms norms_;
  std::vector<Part> parts_;      // of this step, in order
  std::vector<UpdateRun> runs_;  // of this step
};

}  // namespace weft
