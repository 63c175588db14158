// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/checks/scale.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "weft/collectives/checks/rank_factors.h"
#include "weft/collectives/placement_conversions.h"

namespace weft {
namespace {

constexpr double tolerance = 1e-6;
constexpr int directions = 3;  // along a single direction every gradient is a multiple of every other

using Slopes = std::array<double, directions>;

// The factor in a = factor b; nothing if a is no multiple of b.
std::optional<double> factor(const Slopes& a, const Slopes& b) {
  double ab = 0, bb = 0, largest = 0, off = 0;
  for (size_t k = 0; k < directions; ++k) {
    ab += a[k] * b[k];
    bb += b[k] * b[k];
    largest = std::max({largest, std::abs(a[k]), std::abs(b[k])});
  }
  if (largest < tolerance) return 1;  // nothing depends on it
  const double result = bb > 0 ? ab / bb : 0;
  for (size_t k = 0; k < directions; ++k) off = std::max(off, std::abs(a[k] - result * b[k]));
  return off <= tolerance * largest ? std::optional(result) : std::nullopt;
}

bool is(const std::optional<double>& x, double value) {
  return x && std::abs(*x - value) <= 10 * tolerance * std::max(1.0, std::abs(value));
}

class Slope {
 public:
  Slope(const TrainingStep& step, Communicator& comm) : step_(step), comm_(comm) {}

  struct Both {
    Slopes losses, objective;
  };
  // The slopes by the five-point rule, in f64.
  Both of(Parameter& parameter) const {
    constexpr double h = 1e-3;
    Both slopes{};
    for (int k = 0; k < directions; ++k)
      for (const auto& [by, weight] :
           {std::pair(h, 8.0), std::pair(-h, -8.0), std::pair(2 * h, -1.0), std::pair(-2 * h, 1.0)}) {
        const Moved moved(parameter, k, by);
        const double losses = total(), objective = step_.objective ? of_first(step_.objective()) : losses;
        slopes.losses[static_cast<size_t>(k)] += weight * losses / (12 * h);
        slopes.objective[static_cast<size_t>(k)] += weight * objective / (12 * h);
      }
    return slopes;
  }

  // The slopes of every rank's gradient, along the same directions.
  std::vector<Slopes> along(const Tensor& gradient, const Parameter& parameter) const {
    require(gradient.shape() == parameter.value.shape(), "scale: the gradient of '", parameter.name, "' is ",
            gradient.shape(), ", the parameter ", parameter.value.shape());
    Tensor mine = Tensor::zeros({1, directions}, DType::f64);
    const std::vector<double> g = gradient.values();
    for (int k = 0; k < directions; ++k) {
      const std::vector<double> d = direction(parameter, k).values();
      for (size_t i = 0; i < g.size(); ++i) mine.mutate<double>()[k] += g[i] * d[i];
    }
    const Tensor all = comm_.all_gather(mine, Site::here("scale"));
    std::vector<Slopes> result(static_cast<size_t>(comm_.size()));
    for (size_t r = 0; r < result.size(); ++r)
      std::copy_n(all.data<double>() + r * directions, directions, result[r].begin());
    return result;
  }

  std::vector<Tensor> gradients(std::span<Parameter* const> parameters) const {
    if (step_.gradients) return step_.gradients();
    Tape tape;
    Gradients sums;
    declare_group(tape, comm_);
    tape.backward(step_.loss(tape), sums);
    std::vector<Tensor> result;
    for (const Parameter* p : parameters)
      result.push_back(comm_.all_reduce(sums.has(*p) ? sums[*p] : Tensor::zeros(p->value.shape(), DType::f64)));
    return result;
  }

 private:
  // The same on every rank, since they hold one parameter.
  static Tensor direction(const Parameter& parameter, int k) {
    return Tensor::uniform(parameter.value.shape(), {29, static_cast<uint64_t>(k)}, -1, 1, DType::f64);
  }
  struct Moved {
    Parameter& parameter;
    Tensor before;
    Moved(Parameter& parameter, int k, double by) : parameter(parameter), before(parameter.value) {
      std::vector<double> values = before.values();
      const std::vector<double> d = direction(parameter, k).values();
      for (size_t i = 0; i < values.size(); ++i) values[i] += by * d[i];
      parameter.value = Tensor::from(before.shape(), values, DType::f64, before.device());
    }
    ~Moved() { parameter.value = before; }
    Moved(const Moved&) = delete;
    Moved& operator=(const Moved&) = delete;
  };

  // The objective that backward differentiates: the sum of the ranks' shares, or a loss that all ranks hold, once.
  double total() const {
    Tape tape;
    declare_group(tape, comm_);
    const Var loss = step_.loss(tape);
    const Placement placement = placement_of(loss, comm_);
    require(placement != Placement::unknown, "scale: the placement of the loss is unknown; ", how_to_place);
    const bool shares = placement == Placement::varying || placement == Placement::partial;
    const Tensor value = Tensor::full({}, loss.value().item(), DType::f64);
    return shares ? comm_.all_reduce(value).item() : of_first(value.item());
  }
  // The value of the first rank, so that all ranks come to the same conclusion.
  double of_first(double x) const { return comm_.broadcast(Tensor::full({}, x, DType::f64), {0}).item(); }

  const TrainingStep& step_;
  Communicator& comm_;
};

// " is 3 times what it should be: the number of ranks".
std::string compared(const std::optional<double>& factor, int ranks) {
  if (!factor) return std::string(" ") + no_multiple;
  const std::string times = " is " + text(*factor) + " times what it should be";
  for (const auto& [value, name] : rank_factors(ranks))
    if (is(factor, value)) return times + ": " + name;
  return times;
}

// The likely mistake, which follows from the factors of all parameters together.
std::string diagnosis(const std::vector<Scale>& scales, int ranks) {
  const auto all = [&](auto test) { return std::ranges::all_of(scales, test); };
  const auto any = [&](auto test) { return std::ranges::any_of(scales, test); };
  const double n = ranks;
  if (!all([](const Scale& s) { return s.agree; }))
    return std::string("gradients differ between ranks: ") + likely_if_ranks_differ;
  if (any([](const Scale& s) { return !is(s.loss, 1); })) {
    if (all([&](const Scale& s) { return is(s.loss, n); })) return "the loss was multiplied by the number of ranks";
    if (all([&](const Scale& s) { return is(s.loss, 1 / n); }))
      return "the loss was averaged over ranks, and its shares were, too";
    return "the losses of the ranks do not add up to the objective; a share is divided by the global count";
  }
  if (all([&](const Scale& s) { return is(s.gradients, n); }))
    return "every parameter alike: reducer sum, not mean; or a loss that all ranks hold was seeded with 1";
  if (all([&](const Scale& s) { return is(s.gradients, 1 / n); }))
    return "every parameter alike: an extra division by the number of ranks";
  if (all([&](const Scale& s) { return s.gradients && is(s.gradients, *scales[0].gradients); }))
    return "every parameter alike: averaging misplaced";
  if (any([&](const Scale& s) { return is(s.gradients, 1 / n); }))
    return "some parameters only: own slot re-inserted in place of a gather with its adjoint";
  if (any([&](const Scale& s) { return is(s.gradients, n); }))
    return "some parameters only: reduced twice in the adjoint";
  return likely_if_no_multiple;
}

}  // namespace

std::vector<Scale> scales_of(const TrainingStep& step, std::span<Parameter* const> parameters, Communicator& comm) {
  for (const Parameter* p : parameters)
    require(p->value.dtype() == DType::f64, "scale: '", p->name, "' is ", p->value.dtype(),
            ", but finite differences need f64");
  const Slope slope(step, comm);
  const std::vector<Tensor> gradients = slope.gradients(parameters);
  require(gradients.size() == parameters.size(), "scale: ", gradients.size(), " gradients for ", parameters.size(),
          " parameters");
  std::vector<Scale> result;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Slope::Both slopes = slope.of(*parameters[i]);
    const std::vector<Slopes> all = slope.along(gradients[i], *parameters[i]);
    const bool agree = std::ranges::all_of(all, [&](const Slopes& s) { return s == all[0]; });
    result.push_back({parameters[i], factor(slopes.losses, slopes.objective), factor(all[0], slopes.losses), agree});
  }
  return result;
}

void check_scale(const TrainingStep& step, std::span<Parameter* const> parameters, Communicator& comm) {
  const std::vector<Scale> scales = scales_of(step, parameters, comm);
  std::string wrong;
  for (const Scale& s : scales) {
    const std::string name = "\n  '" + s.parameter->name + "': ";
    if (!is(s.loss, 1)) wrong += name + "the slope of the losses" + compared(s.loss, comm.size());
    if (!s.agree)
      wrong += name + "the ranks have different gradients";
    else if (!is(s.gradients, 1))
      wrong += name + "its gradient" + compared(s.gradients, comm.size());
  }
  if (!wrong.empty()) fail({"scale: ", diagnosis(scales, comm.size()), wrong});
}

}  // namespace weft
