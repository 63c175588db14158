#pragma once
// Steps of a rule over parameters in flat memory. Groups of parameters have their own numbers; one rank may own a range
// of the memory only, and then has state for that range and updates nothing else.
//
//   Optimizer optimizer(network.parameters(), AdamW{.weight_decay = 0.1});
//   ...
//   tape.backward(loss, gradients);
//   optimizer.step(gradients, rate, clip(optimizer.norm(gradients), 1));
//
// bf16 parameters are rounded copies of f32 master weights, which are state. A parameter without a gradient stays as it
// is, and so do its state and its step count.
#include "optim/norms.h"
#include "optim/rules.h"

namespace weft {

// Rules of one optimizer are of one kind and differ in their numbers.
struct ParameterGroup {
  std::vector<Parameter*> parameters;
  Rule rule;
  double rate_scale = 1;
};
std::vector<Parameter*> parameters_of(const std::vector<ParameterGroup>& groups);

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

  // Of all gradients together, over all ranks.
  double norm(const Gradients& gradients);
  double norm(const Tensor& gradient, const std::vector<bool>& present);

  const FlatParameters& parameters() const { return parameters_; }
  Range owned() const { return owned_; }
  const Tensor& values() const { return value_; }  // of the owned range: what steps change, be it master weights

  // What a checkpoint holds beside the values: for each parameter and slot the elements from number `first` on that
  // this rank owns, as a view to be read or written, and each parameter's number of steps.
  struct State {
    std::string name;  // "adamw.m", "adamw.master"
    Parameter* parameter;
    int64_t first;
    Tensor values;
  };
  std::vector<State> state();
  int64_t steps(const Parameter& parameter) const;
  void set_steps(const Parameter& parameter, int64_t steps);
  // Master weights begin as the values; this lets them begin again after the values were set from elsewhere.
  void adopt_values();

 private:
  static constexpr int64_t no_group = -1;
  struct Options {
    Rule rule;
    double rate_scale;
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
    Tensor gradient;
  };

  void add_group(const ParameterGroup& group);
  void make_state();
  void collect(const Source& source);
  Part part_of(const Source& source, int64_t place) const;
  double norm(const Source& source);
  void step(const Source& source, double rate, double scale);
  void plan(const Source& source, double rate, double scale);
  void descend(const Tensor& direction, double rate);  // the second half of Lamb
  void measure(const Tensor* direction);               // norms of the values, and of it or of the gradients
  const Options& options(const Part& part) const {
    return options_[static_cast<size_t>(group_of_[static_cast<size_t>(part.place)])];
  }
  Tensor owned_part(const Tensor& owned, Range range) const {
    return owned.slice(range.first - owned_.first, range.last - owned_.first);
  }

  FlatParameters parameters_;
  Range owned_;
  std::vector<Options> options_;
  std::vector<int64_t> group_of_, steps_;  // by place
  Rule kind_;                              // of the group that keeps most
  UpdateRule kernel_;
  bool adapts_ = false;
  Tensor value_, rounded_;  // the owned range of what is updated, and of its bf16 copy
  std::vector<Tensor> slots_;
  Norms norms_;
  std::vector<Part> parts_;      // of this step, in order
  std::vector<UpdateRun> runs_;  // of this step
};

}  // namespace weft
