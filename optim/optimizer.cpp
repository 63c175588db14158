// SPDX-License-Identifier: Apache-2.0
// Construction and state of an optimizer. optimizer_step.cpp has its steps.
#include "weft/optim/optimizer.h"

#include <algorithm>

#include "weft/collectives/sharding.h"
#include "weft/engine/kernels/backend.h"

namespace weft {

std::vector<Parameter*> parameters_of(const std::vector<ParameterGroup>& groups) {
  std::vector<Parameter*> all;
  for (const ParameterGroup& group : groups) all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  return all;
}

FlatLayout layout_of(const std::vector<ParameterGroup>& groups) {
  using Kind = std::pair<std::string, std::vector<std::string>>;
  std::vector<Kind> kinds;
  std::vector<std::pair<size_t, Parameter*>> ordered;
  ByParameter<bool> whole;
  for (const ParameterGroup& group : groups)
    for (Parameter* parameter : group.parameters) {
      const Shape& shape = parameter->value.shape();
      const auto found = std::find(kinds.begin(), kinds.end(), Kind(name(group.rule), slots(group.rule, shape)));
      ordered.push_back({static_cast<size_t>(found - kinds.begin()), parameter});
      if (found == kinds.end()) kinds.push_back({name(group.rule), slots(group.rule, shape)});
      whole[parameter] = needs_whole(group.rule, shape);
    }
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Parameter*> parameters;
  for (const auto& [kind, parameter] : ordered) parameters.push_back(parameter);
  return FlatLayout(parameters, [&](const Parameter& parameter) { return whole[&parameter]; });
}

Optimizer::Optimizer(const std::vector<ParameterGroup>& groups)
    : Optimizer(FlatParameters(layout_of(groups)), groups) {}

Optimizer::Optimizer(const std::vector<Parameter*>& parameters, const Rule& rule)
    : Optimizer(std::vector<ParameterGroup>{{parameters, rule}}) {}

Optimizer::Optimizer(FlatParameters parameters, const std::vector<ParameterGroup>& groups)
    : Optimizer(parameters, groups, parameters.layout().all()) {}

Optimizer::Optimizer(FlatParameters parameters, const std::vector<ParameterGroup>& groups, Range owned, Combine combine)
    : parameters_(std::move(parameters)),
      owned_(owned),
      group_of_(parameters_.layout().places().size(), no_group),
      kind_of_(group_of_.size(), no_group),
      steps_(group_of_.size(), 0),
      factors_(group_of_.size()),
      norms_(parameters_.layout(), std::move(combine)) {
  const int64_t block = FlatLayout::block, size = parameters_.layout().padded_size();
  require(0 <= owned_.first && owned_.first <= owned_.last && owned_.last <= size && owned_.first % block == 0 &&
              owned_.last % block == 0,
          "optimizer: elements ", owned_.first, " to ", owned_.last, " are no blocks of 1024 within ", size);
  require(!groups.empty(), "optimizer: there is no group of parameters");
  for (const ParameterGroup& group : groups) add_group(group);
  for (size_t i = 0; i < group_of_.size(); ++i)
    if (group_of_[i] != no_group) add_to_kind(static_cast<int64_t>(i));
  make_state();
}

void Optimizer::add_group(const ParameterGroup& group) {
  check(group.rule);
  adapts_ = adapts_ || adapts(group.rule);
  for (const Parameter* parameter : group.parameters) {
    check(group.rule, parameter->value.shape(), parameter->name);
    const int64_t place = parameters_.layout().find(*parameter);
    require(place >= 0, "optimizer: ", parameter->name, " is not in the flat memory");
    int64_t& mine = at(group_of_, place);
    require(mine == no_group, "optimizer: ", parameter->name, " is in two groups");
    mine = static_cast<int64_t>(options_.size());
  }
  options_.push_back({group.rule, group.rate_scale, group.unused_steps});
}

void Optimizer::add_to_kind(int64_t i) {
  const Rule& rule = at(options_, at(group_of_, i)).rule;
  const auto& [parameter, begin, size] = place(i);
  const Shape& shape = parameter->value.shape();
  const Kind fresh = {name(rule),           slots(rule, shape), kernel(rule), direction_kernel(rule),
                      factors(rule, shape), place(i).range()};
  auto kind = std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& kind) {
    return kind.name == fresh.name && kind.slot_names == fresh.slot_names;
  });
  if (kind == kinds_.end()) kind = kinds_.insert(kind, fresh);
  kind->range.last = begin + size;
  at(kind_of_, i) = kind - kinds_.begin();
  const Range mine = intersection(place(i).range(), owned_);
  require(!needs_whole(rule, shape) || mine.size() == 0 || mine.size() == size, "optimizer: ", name(rule),
          " needs all of ", parameter->name, ", but elements ", owned_.first, " to ", owned_.last,
          " have only a part of it; lay the parameters out with layout_of(groups)");
}

void Optimizer::make_state() {
  const FlatLayout& layout = parameters_.layout();
  require(is_floating(layout.dtype()), "optimizer: parameters are ", layout.dtype(), ", not floating");
  value_ = parameters_.part(owned_);
  if (layout.dtype() == DType::bf16) {
    rounded_ = value_;
    value_ = rounded_.to(DType::f32);
  }
  for (Kind& kind : kinds_) {
    kind.range = intersection(owned_, kind.range);
    kind.value = owned_part(value_, kind.range);
    if (rounded_.defined()) kind.rounded = owned_part(rounded_, kind.range);
    kind.slots.reserve(kind.slot_names.size() + 1);  // one more, for a direction
    for (size_t i = 0; i < kind.slot_names.size(); ++i)
      kind.slots.push_back(Tensor::zeros(kind.value.shape(), value_.dtype(), layout.device()));
  }
  for (size_t i = 0; i < factors_.size(); ++i)
    if (group_of_[i] != no_group && at(kinds_, kind_of_[i]).factors && owns(static_cast<int64_t>(i)))
      factors_[i] = Factors(layout.places()[i].parameter->value.shape(), value_.dtype(), layout.device());
}

// Whether this rank computes steps that need the whole parameter, even if its slice is empty.
bool Optimizer::owns(int64_t i) const { return owned_.first <= place(i).begin && place(i).begin < owned_.last; }

// Lists the parts of a tensor that has the layout of the parameters.
void Optimizer::list(const Kind& kind, const std::string& slot, const Tensor& values, Range held,
                     std::vector<State>& all) const {
  for (size_t i = 0; i < kind_of_.size(); ++i) {
    if (kind_of_[i] != &kind - kinds_.data()) continue;
    const Place& place = this->place(static_cast<int64_t>(i));
    const Range mine = intersection(place.range(), held);
    all.push_back(
        {kind.name + "." + slot, place.parameter, mine.first - place.begin,
         mine.size() == 0 ? values.slice(0, 0) : values.slice(mine.first - held.first, mine.last - held.first),
         place.parameter->value.shape(), place.parameter->sharding});
  }
}

// Factors have one axis less than the parameter. If a group divides that axis, they are equal on all of its ranks.
void Optimizer::list_factors(const Kind& kind, std::vector<State>& all) const {
  for (size_t i = 0; i < kind_of_.size(); ++i) {
    if (kind_of_[i] != &kind - kinds_.data()) continue;
    Parameter* parameter = place(static_cast<int64_t>(i)).parameter;
    const Shape& shape = parameter->value.shape();
    const auto add = [&](const char* slot, const Tensor& mine, int dropped) {
      auto sharding = parameter->sharding;
      if (is_divided(*parameter)) {
        auto& [group, axis, extents] = *parameter->sharding;
        sharding = axis == dropped ? invariant(group) : divided(group, axis - (axis > dropped), extents);
      }
      const Tensor values = mine.defined() ? mine.reshape({mine.size()}) : value_.slice(0, 0);
      all.push_back({kind.name + "." + slot, parameter, 0, values, shape.without(dropped), sharding});
    };
    add("rows", factors_[i].rows, shape.index(-1));
    add("columns", factors_[i].columns, shape.index(-2));
  }
}

std::vector<Optimizer::State> Optimizer::state() {
  std::vector<State> all;
  for (const Kind& kind : kinds_) {
    for (size_t k = 0; k < kind.slots.size(); ++k) list(kind, kind.slot_names[k], kind.slots[k], kind.range, all);
    if (kind.factors) list_factors(kind, all);
  }
  for (const Kind& kind : kinds_)
    if (rounded_.defined()) list(kind, "master", value_, owned_, all);
  return all;
}

int64_t Optimizer::steps(const Parameter& parameter) const {
  const int64_t place = parameters_.layout().find(parameter);
  require(place >= 0, "optimizer: ", parameter.name, " is not in the flat memory");
  return at(steps_, place);
}

void Optimizer::set_steps(const Parameter& parameter, int64_t steps) {
  const int64_t place = parameters_.layout().find(parameter);
  require(place >= 0 && steps >= 0, "optimizer: ", parameter.name, " cannot have done ", steps, " steps");
  at(steps_, place) = steps;
}

void Optimizer::adopt_values() { adopt(owned_); }
void Optimizer::adopt_values(const Parameter& parameter) {
  const int64_t place = parameters_.layout().find(parameter);
  require(place >= 0, "optimizer: ", parameter.name, " is not in the flat memory");
  adopt(intersection(owned_, this->place(place).range()));
}
void Optimizer::adopt(Range range) {
  if (!rounded_.defined() || range.size() == 0) return;
  Tensor master = owned_part(value_, range);
  backend(value_.device()).cast(owned_part(rounded_, range), master);
}

}  // namespace weft
