#pragma once
// Steps of rules over parameters in flat memory. Groups of parameters have rules and numbers of their own; one rank may
// own a range of the memory only, and then has state for that range and updates nothing else.
//
//   Optimizer optimizer({{matrices, Muon{}}, {others, AdamW{.weight_decay = 0}, 0.1}});
//   ...
//   tape.backward(loss, gradients);
//   optimizer.step(gradients, rate, clip(optimizer.norm(gradients), 1));
//
// bf16 parameters are rounded copies of f32 master weights, which are state. A parameter without a gradient stays as it
// is, and so do its state and its step count.
#include "optim/adafactor.h"
#include "optim/norms.h"
#include "optim/rules.h"

namespace weft {

struct ParameterGroup {
  std::vector<Parameter*> parameters;
  Rule rule;
  double rate_scale = 1;
  // After so many steps it is an Error if one of them has not had a gradient yet, on any rank: it is part of no loss.
  // The Error comes once, before that step, so a caller may catch it and go on. 0: some may rest as long as they like.
  int64_t unused_steps = 10;
};
std::vector<Parameter*> parameters_of(const std::vector<ParameterGroup>& groups);
// For these rules: parameters that keep the same state side by side, and those undivided that a step needs whole.
FlatLayout layout_of(const std::vector<ParameterGroup>& groups);

// The part of flat memory that this rank updates, and how norms are summed over the ranks.
struct Share {
  Range owned;  // cut at multiples of 1024
  Combine combine = {};
};

class Optimizer {
 public:
  // Moves the parameters to flat memory of its own.
  explicit Optimizer(const std::vector<ParameterGroup>& groups);
  Optimizer(const std::vector<Parameter*>& parameters, const Rule& rule);
  // Parameters in the memory that are in no group are left alone.
  Optimizer(FlatParameters parameters, const std::vector<ParameterGroup>& groups);
  Optimizer(FlatParameters parameters, const std::vector<ParameterGroup>& groups, Share share);

  // `scale` multiplies the gradients in passing: clipping, a mean over ranks.
  void step(const Gradients& gradients, double rate, double scale = 1);
  // The same of gradients in flat memory: the owned range, zero where no parameter lies, of the parameters' type or,
  // for bf16 parameters, f32. `present` says for each place of the layout whether the parameter has a gradient on any
  // rank. Neighbours with equal numbers are updated together.
  void step(const Tensor& gradient, const std::vector<bool>& present, double rate, double scale = 1);

  // What a step begins with, or several optimizers' steps: who has not had a gradient yet, though it is time.
  void add_unused(const std::vector<bool>& present, std::string& names);
  static void expect_none_unused(const std::string& names);

  // Of all gradients together, over all ranks.
  double norm(const Gradients& gradients);
  double norm(const Tensor& gradient, const std::vector<bool>& present);

  const FlatParameters& parameters() const { return parameters_; }
  Range owned() const { return owned_; }
  const Tensor& values() const { return value_; }  // of the owned range: what steps change, be it master weights

  // What a checkpoint holds beside the values: for each parameter and slot the elements from number `first` on that
  // this rank owns, possibly none, as a view to be read or written; and each parameter's number of steps. The list is
  // the same on all ranks.
  struct State {
    std::string name;  // "adamw.m", "adamw.master"
    Parameter* parameter;
    int64_t first;
    Tensor values;
    Shape shape;                                      // of all elements
    std::shared_ptr<const GroupPlacement> placement;  // as that of a parameter
  };
  std::vector<State> state();
  int64_t steps(const Parameter& parameter) const;
  void set_steps(const Parameter& parameter, int64_t steps);
  // Master weights begin as the values; this lets them begin again after the values were set from elsewhere: all, or
  // those of one parameter.
  void adopt_values();
  void adopt_values(const Parameter& parameter);

 private:
  static constexpr int64_t no_group = -1;
  struct Options {
    Rule rule;
    double rate_scale;
    int64_t unused_steps;
  };
  // Parameters that keep the same slots, for one kernel: what this rank owns between the first and the last of them.
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
  // Where a step's gradients are: in `by_parameter`, or else in flat memory.
  struct Source {
    const Gradients* by_parameter;
    const Tensor* flat;
    const std::vector<bool>* present;
  };
  // What this rank updates of a parameter that has a gradient; possibly nothing.
  struct Part {
    int64_t place;
    Range range;
    Tensor gradient;  // or the direction, once there is one
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
  std::vector<Factors> factors_;                     // by place, where they are kept
  bool adapts_ = false;
  int64_t calls_ = 0;       // of step
  bool begun_ = false;      // a step, by add_unused
  Tensor value_, rounded_;  // the owned range of what is updated, and of its bf16 copy
  Norms norms_;
  std::vector<Part> parts_;      // of this step, in order
  std::vector<UpdateRun> runs_;  // of this step
};

}  // namespace weft
