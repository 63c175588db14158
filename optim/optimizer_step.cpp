// SPDX-License-Identifier: Apache-2.0
// The steps of an optimizer. optimizer.cpp has its construction and state.
#include <algorithm>

#include "weft/collectives/sharding.h"
#include "weft/engine/kernels/backend.h"
#include "weft/optim/muon.h"
#include "weft/optim/optimizer.h"

namespace weft {

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

Optimizer::Part Optimizer::part_of(const Source& source, int64_t i) const {
  const auto& [parameter, begin, size] = place(i);
  const Range range = intersection({begin, begin + size}, owned_);
  if (source.flat) return {i, range, owned_part(*source.flat, range)};
  const Tensor& value = parameter->value;
  const Tensor& gradient = (*source.by_parameter)[*parameter];
  require(gradient.shape() == value.shape() && gradient.device() == value.device(), "optimizer: a gradient ",
          gradient.shape(), " on ", gradient.device(), " for ", parameter->name, ", ", value.shape(), " on ",
          value.device());
  const Tensor row = gradient.reshape({size});
  return {i, range, range.size() > 0 ? row.slice(range.first - begin, range.last - begin) : row.slice(0, 0)};
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

template <class Present> void Optimizer::find_unused(const Present& present, std::string& names) {
  if (std::exchange(begun_, true)) return;
  ++calls_;
  for (size_t i = 0; i < group_of_.size(); ++i)
    if (group_of_[i] != no_group && at(options_, group_of_[i]).unused_steps == calls_ && steps_[i] == 0 && !present(i))
      names += (names.empty() ? "" : ", ") + place(static_cast<int64_t>(i)).parameter->name;
}
void Optimizer::add_unused(const std::vector<bool>& present, std::string& names) {
  find_unused([&](size_t place) { return present[place]; }, names);
}
// A parameter in no loss would silently keep its initial value.
void Optimizer::expect_none_unused(const std::string& names) {
  require(names.empty(), "optimizer: no gradient has reached ", names,
          " yet, on any rank; leave out what no loss depends on, or give it a group with unused_steps = 0");
}

double Optimizer::norm(const Source& source) {
  collect(source);
  norms_.start(1);
  for (const Part& part : parts_) norms_.add(Norms::of_gradients, part.place, part.gradient, part.range.first);
  norms_.finish();
  return norms_.of_all(Norms::of_gradients);
}

void Optimizer::measure() {
  norms_.start(2);
  for (const auto& [place, range, gradient] : parts_) {
    if (range.size() == 0) continue;
    norms_.add(Norms::of_gradients, place, gradient, range.first);
    norms_.add(Norms::of_values, place, owned_part(value_, range), range.first);
  }
  norms_.finish();
}

StepPoint Optimizer::point(const Part& part, double rate, double scale) const {
  return {.step = at(steps_, part.place),
          .rate = rate * options(part).rate_scale,
          .gradient_scale = scale,
          .shape = whole_shape(*place(part.place).parameter),
          .dtype = value_.dtype()};
}

// In flat memory, neighbours with equal scalars become one run, including the zeros between them.
template <class Numbers> void Optimizer::plan(const Kind& kind, const Tensor* flat, const Numbers& numbers) {
  runs_.clear();
  int64_t last_place = 0;
  for (const Part& part : parts_) {
    if (!is_of(kind, part) || part.range.size() == 0) continue;
    const UpdateScalars scalars = numbers(part);
    const int64_t first = part.range.first - kind.range.first;
    if (flat && !runs_.empty() && last_place + 1 == part.place && runs_.back().scalars == scalars)
      runs_.back().gradient = owned_part(*flat, {kind.range.first + runs_.back().first, part.range.last});
    else
      runs_.push_back({part.gradient, first, scalars});
    last_place = part.place;
  }
}

// The directions replace the gradients in parts_.
void Optimizer::find_directions(Kind& kind, const Tensor* flat, double rate, double scale) {
  const auto numbers = [&](const Part& part) {
    return direction_scalars(options(part).rule, point(part, rate, scale));
  };
  const Tensor directions = kind.factors ? Tensor() : Tensor::like(kind.value);
  if (!kind.factors) {
    plan(kind, flat, numbers);
    kind.slots.push_back(directions);
    Tensor none;
    backend(value_.device()).update(*kind.direction, runs_, kind.value, kind.slots, none);
    kind.slots.pop_back();
  }
  for (Part& part : parts_) {
    if (!is_of(kind, part)) continue;
    const Parameter& parameter = *place(part.place).parameter;
    const auto* muon = std::get_if<Muon>(&options(part).rule);
    if (!kind.factors)
      part.gradient = part.range.size() == 0
                          ? directions.slice(0, 0)
                          : directions.slice(part.range.first - kind.range.first, part.range.last - kind.range.first);
    if (!owns(part.place)) continue;
    if (kind.factors) part.gradient = at(factors_, part.place).direction(part.gradient, parameter, numbers(part));
    if (muon) part.gradient = orthogonalized(part.gradient.reshape(parameter.value.shape()), parameter, *muon);
    part.gradient = part.gradient.reshape({part.range.size()});
  }
}

void Optimizer::step(const Source& source, double rate, double scale) {
  collect(source);
  std::string unused;
  const auto present = [this](size_t place) {
    return std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) { return part.place == int64_t(place); });
  };
  find_unused(present, unused);
  expect_none_unused(unused);
  begun_ = false;
  for (const Part& part : parts_) ++at(steps_, part.place);
  for (Kind& kind : kinds_)
    if (kind.direction) find_directions(kind, source.flat, rate, scale);
  if (adapts_) measure();
  const auto numbers = [&](const Part& part) {
    StepPoint here = point(part, rate, scale);
    if (adapts_) {
      here.value_norm = norms_.of(Norms::of_values, part.place);
      here.direction_norm = norms_.of(Norms::of_gradients, part.place);
    }
    return scalars(options(part).rule, here);
  };
  for (Kind& kind : kinds_) {
    plan(kind, kind.direction ? nullptr : source.flat, numbers);
    if (!runs_.empty()) backend(value_.device()).update(kind.kernel, runs_, kind.value, kind.slots, kind.rounded);
  }
  for (const Part& part : parts_)
    if (part.range.size() > 0) parameters_.changed(part.place);
  runs_.clear();
  parts_.clear();
}

}  // namespace weft
