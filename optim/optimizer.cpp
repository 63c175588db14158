#include "optim/optimizer.h"

#include "engine/backend.h"

namespace weft {

std::vector<Parameter*> parameters_of(const std::vector<ParameterGroup>& groups) {
  std::vector<Parameter*> all;
  for (const ParameterGroup& group : groups) all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  return all;
}

Optimizer::Optimizer(const std::vector<ParameterGroup>& groups)
    : Optimizer(FlatParameters(parameters_of(groups)), groups) {}

Optimizer::Optimizer(const std::vector<Parameter*>& parameters, const Rule& rule)
    : Optimizer(std::vector<ParameterGroup>{{parameters, rule}}) {}

Optimizer::Optimizer(FlatParameters parameters, const std::vector<ParameterGroup>& groups)
    : Optimizer(parameters, groups, {parameters.layout().all()}) {}

Optimizer::Optimizer(FlatParameters parameters, const std::vector<ParameterGroup>& groups, Share share)
    : parameters_(std::move(parameters)),
      owned_(share.owned),
      group_of_(parameters_.layout().places().size(), no_group),
      steps_(group_of_.size(), 0),
      norms_(parameters_.layout(), std::move(share.combine)) {
  const int64_t block = FlatLayout::block, size = parameters_.layout().padded_size();
  require(0 <= owned_.first && owned_.first <= owned_.last && owned_.last <= size && owned_.first % block == 0 &&
              owned_.last % block == 0,
          "optimizer: elements ", owned_.first, " to ", owned_.last, " are no blocks of 1024 within ", size);
  require(!groups.empty(), "optimizer: there is no group of parameters");
  kind_ = groups[0].rule;
  for (const ParameterGroup& group : groups) add_group(group);
  kernel_ = kernel(kind_);
  make_state();
}

void Optimizer::add_group(const ParameterGroup& group) {
  check(group.rule);
  require(group.rule.index() == kind_.index(), "optimizer: ", name(group.rule), " beside ", name(kind_),
          "; each kind needs an optimizer of its own");
  if (slots(group.rule).size() > slots(kind_).size()) kind_ = group.rule;
  adapts_ = adapts_ || adapts(group.rule);
  for (const Parameter* parameter : group.parameters) {
    const int64_t place = parameters_.layout().find(*parameter);
    require(place >= 0, "optimizer: ", parameter->name, " is not in the flat memory");
    int64_t& mine = group_of_[static_cast<size_t>(place)];
    require(mine == no_group, "optimizer: ", parameter->name, " is in two groups");
    mine = static_cast<int64_t>(options_.size());
  }
  options_.push_back({group.rule, group.rate_scale});
}

void Optimizer::make_state() {
  const FlatLayout& layout = parameters_.layout();
  require(is_floating(layout.dtype()), "optimizer: parameters are ", layout.dtype(), ", not floating");
  value_ = parameters_.part(owned_);
  if (layout.dtype() == DType::bf16) {
    rounded_ = value_;
    value_ = rounded_.to(DType::f32);
  }
  for (size_t i = slots(kind_).size(); i > 0; --i)
    slots_.push_back(Tensor::zeros(value_.shape(), value_.dtype(), layout.device()));
}

void Optimizer::step(const Gradients& gradients, double rate, double scale) {
  step({&gradients, nullptr, nullptr}, rate, scale);
}
void Optimizer::step(const Tensor& gradient, const std::vector<bool>& present, double rate, double scale) {
  step({nullptr, &gradient, &present}, rate, scale);
}
double Optimizer::norm(const Gradients& gradients) { return norm({&gradients, nullptr, nullptr}); }
double Optimizer::norm(const Tensor& gradient, const std::vector<bool>& present) {
  return norm({nullptr, &gradient, &present});
}

Optimizer::Part Optimizer::part_of(const Source& source, int64_t place) const {
  const auto& [parameter, begin, size] = parameters_.layout().places()[static_cast<size_t>(place)];
  const Range range = common({begin, begin + size}, owned_);
  if (source.flat) return {place, range, range.size() > 0 ? owned_part(*source.flat, range) : source.flat->slice(0, 0)};
  const Tensor& value = parameter->value;
  const Tensor& gradient = (*source.by_parameter)[*parameter];
  require(gradient.shape() == value.shape() && gradient.device() == value.device(), "optimizer: a gradient ",
          gradient.shape(), " on ", gradient.device(), " for ", parameter->name, ", ", value.shape(), " on ",
          value.device());
  const Tensor row = gradient.reshape({size});
  return {place, range, range.size() > 0 ? row.slice(range.first - begin, range.last - begin) : row.slice(0, 0)};
}

void Optimizer::collect(const Source& source) {
  const FlatLayout& layout = parameters_.layout();
  const std::vector<Place>& places = layout.places();
  require(!source.flat || (source.flat->shape() == value_.shape() && source.present->size() == places.size()),
          "optimizer: flat gradients and marks must be for ", owned_.size(), " elements of ", places.size(),
          " parameters");
  parts_.clear();
  for (size_t i = 0; i < places.size(); ++i) {
    if (group_of_[i] == no_group) continue;
    if (!(source.flat ? (*source.present)[i] : source.by_parameter->has(*places[i].parameter))) continue;
    parameters_.must_hold(static_cast<int64_t>(i));
    parts_.push_back(part_of(source, static_cast<int64_t>(i)));
    const DType dtype = parts_.back().gradient.dtype();
    require(dtype == parts_[0].gradient.dtype() && (dtype == value_.dtype() || dtype == layout.dtype()),
            "optimizer: the gradient of ", places[i].parameter->name, " is ", dtype, ", the first one is ",
            parts_[0].gradient.dtype(), ", the values are ", layout.dtype());
  }
}

double Optimizer::norm(const Source& source) {
  collect(source);
  norms_.start(1);
  for (const Part& part : parts_) norms_.add(Norms::of_gradients, part.place, part.gradient, part.range.first);
  norms_.finish();
  return norms_.of_all(Norms::of_gradients);
}

void Optimizer::measure(const Tensor* direction) {
  norms_.start(2);
  for (const auto& [place, range, gradient] : parts_) {
    if (range.size() == 0) continue;
    norms_.add(Norms::of_gradients, place, direction ? owned_part(*direction, range) : gradient, range.first);
    norms_.add(Norms::of_values, place, owned_part(value_, range), range.first);
  }
  norms_.finish();
}

// In flat memory, neighbours with equal numbers become one run, with the zeros between them.
void Optimizer::plan(const Source& source, double rate, double scale) {
  const bool measured = adapts_ && kernel_ != UpdateRule::adam_direction;
  runs_.clear();
  int64_t last_place = 0;
  for (const Part& part : parts_) {
    if (part.range.size() == 0) continue;
    const Options& mine = options(part);
    StepPoint point = {steps_[static_cast<size_t>(part.place)], rate * mine.rate_scale, scale};
    if (measured) {
      point.value_norm = norms_.of(Norms::of_values, part.place);
      point.gradient_norm = norms_.of(Norms::of_gradients, part.place);
    }
    const UpdateScalars numbers = scalars(mine.rule, point);
    const int64_t first = part.range.first - owned_.first;
    if (source.flat && !runs_.empty() && last_place + 1 == part.place && runs_.back().scalars == numbers)
      runs_.back().gradient = source.flat->slice(runs_.back().first, first + part.range.size());
    else
      runs_.push_back({part.gradient, first, numbers});
    last_place = part.place;
  }
}

void Optimizer::step(const Source& source, double rate, double scale) {
  collect(source);
  for (const Part& part : parts_) ++steps_[static_cast<size_t>(part.place)];
  Backend& device = backend(value_.device());
  Tensor none;
  if (kernel_ == UpdateRule::adam_direction) {
    plan(source, rate, scale);
    Tensor slots[] = {slots_[0], slots_[1], Tensor::like(value_)};
    device.update(kernel_, runs_, value_, slots, none);
    descend(slots[2], rate);
  } else {
    if (adapts_) measure(nullptr);
    plan(source, rate, scale);
    device.update(kernel_, runs_, value_, slots_, rounded_);
  }
  for (const Part& part : parts_)
    if (part.range.size() > 0) parameters_.changed(part.place);
  runs_.clear();
  parts_.clear();
}

void Optimizer::descend(const Tensor& direction, double rate) {
  if (adapts_) measure(&direction);
  runs_.clear();
  for (const Part& part : parts_) {
    if (part.range.size() == 0) continue;
    const Options& mine = options(part);
    UpdateScalars numbers;
    numbers.rate = rate * mine.rate_scale;
    if (adapts(mine.rule))
      numbers.scale = lamb_ratio(norms_.of(Norms::of_values, part.place), norms_.of(Norms::of_gradients, part.place));
    runs_.push_back({owned_part(direction, part.range), part.range.first - owned_.first, numbers});
  }
  backend(value_.device()).update(UpdateRule::descent, runs_, value_, {}, rounded_);
}

std::vector<Optimizer::State> Optimizer::state() {
  const std::vector<Place>& places = parameters_.layout().places();
  std::vector<State> all;
  const auto list = [&](const std::string& slot, const Tensor& owned) {
    for (size_t i = 0; i < places.size(); ++i) {
      const Range range = common(places[i].range(), owned_);
      if (group_of_[i] != no_group && range.size() > 0)
        all.push_back(
            {name(kind_) + "." + slot, places[i].parameter, range.first - places[i].begin, owned_part(owned, range)});
    }
  };
  const std::vector<std::string> names = slots(kind_);
  for (size_t k = 0; k < names.size(); ++k) list(names[k], slots_[k]);
  if (rounded_.defined()) list("master", value_);
  return all;
}

int64_t Optimizer::steps(const Parameter& parameter) const {
  const int64_t place = parameters_.layout().find(parameter);
  require(place >= 0, "optimizer: ", parameter.name, " is not in the flat memory");
  return steps_[static_cast<size_t>(place)];
}

void Optimizer::set_steps(const Parameter& parameter, int64_t steps) {
  const int64_t place = parameters_.layout().find(parameter);
  require(place >= 0 && steps >= 0, "optimizer: ", parameter.name, " cannot have done ", steps, " steps");
  steps_[static_cast<size_t>(place)] = steps;
}

void Optimizer::adopt_values() {
  if (rounded_.defined()) backend(value_.device()).cast(rounded_, value_);
}

}  // namespace weft
