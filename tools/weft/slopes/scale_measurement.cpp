// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/slopes/slopes.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace weft::verify {
namespace {

constexpr double max_roundings = 64;  // in one value, as multiples of its last digit

// The losses of all ranks as the reducer combines them, each with a weight.
MovedValues combined(const std::vector<MovedValues>& losses, Reducer reducer, const std::vector<double>& weights) {
  MovedValues sum{0, Matrix::Zero(losses[0].moved.rows(), losses[0].moved.cols())};
  const double unit = reducer == Reducer::mean ? 1 / static_cast<double>(losses.size()) : 1;
  for (size_t r = 0; r < losses.size(); ++r) {
    sum.at_rest += unit * weights[r] * losses[r].at_rest;
    sum.moved += unit * weights[r] * losses[r].moved;
  }
  return sum;
}

// Weights that turn means of each rank's samples into parts of the mean of all; none if ranks have equally many.
std::vector<double> weights_by_rows(const Dump& dump) {
  const auto samples = static_cast<double>(std::accumulate(dump.rows.begin(), dump.rows.end(), int64_t{0}));
  std::vector<double> weights;
  for (const int64_t rows : dump.rows) weights.push_back(dump.ranks * static_cast<double>(rows) / samples);
  const bool uneven = std::ranges::any_of(weights, [&](double w) { return w != 1; });
  return uneven && samples > 0 && std::ssize(weights) == dump.ranks ? weights : std::vector<double>();
}

// Slopes of one function along the directions of all parameters. The noise of a single value is that of the
// parameter's own values, if these are not just lucky: it is at least what is usual, and what their digits allow.
std::vector<Slopes> slopes_of_all(const std::vector<MovedValues>& all, const ScaleEvidence& scale) {
  std::vector<double> noises;
  for (const MovedValues& values : all) noises.push_back(noise_of(values));
  std::vector<double> sorted = noises;
  std::ranges::sort(sorted);
  std::vector<Slopes> slopes;
  for (size_t i = 0; i < all.size(); ++i) {
    const double digits = scale.epsilon * all[i].moved.cwiseAbs().maxCoeff();
    const double noise = std::max({noises[i], sorted[sorted.size() / 2], digits});
    Slopes& added = slopes.emplace_back(slopes_of(all[i], scale.step, noise));
    if (noise > max_roundings * digits) added = {added.along, 0, added.tolerance()};  // the function itself is rough
  }
  return slopes;
}

// Slopes of every parameter, by function; none of a function that was not dumped.
struct AllSlopes {
  std::vector<Slopes> objective, losses, reweighted;
  std::map<std::string, std::vector<Slopes>> terms;
};

AllSlopes all_slopes(const Dump& dump) {
  const std::vector<MovedParameter>& parameters = dump.scale->parameters;
  const auto slopes_by = [&](auto values_of) {
    std::vector<MovedValues> values;
    for (const MovedParameter& p : parameters) values.push_back(values_of(p));
    return slopes_of_all(values, *dump.scale);
  };
  const auto of_losses = [&](const std::vector<double>& weights) {
    return slopes_by([&](const MovedParameter& p) { return combined(p.losses, dump.reducer, weights); });
  };
  AllSlopes all;
  const std::vector<double> by_rows = weights_by_rows(dump), equal(static_cast<size_t>(dump.ranks), 1);
  if (parameters[0].objective) all.objective = slopes_by([](const MovedParameter& p) { return *p.objective; });
  for (const auto& term : parameters[0].terms)
    all.terms[term.first] = slopes_by([&](const MovedParameter& p) { return p.terms.at(term.first); });
  if (parameters[0].losses.empty()) return all;
  all.losses = of_losses(equal);
  if (parameters[0].objective && !by_rows.empty()) all.reweighted = of_losses(by_rows);
  return all;
}

MeasuredParameter measured(const MovedParameter& p, const Slopes& expected) {
  const auto factor = [&](const Matrix& gradient) {
    return Factor{slopes_of(gradient, p.directions, p.epsilon), expected};
  };
  MeasuredParameter result{&p, {}, {}, {}, {}, {}, {}, true};
  Matrix sum = Matrix::Zero(1, p.directions.cols());
  for (const Matrix& gradient : p.gradients) {
    result.gradients.push_back(factor(gradient));
    const double apart = (gradient - p.gradients[0]).norm();
    result.agree = result.agree && apart <= std::sqrt(p.epsilon) * p.gradients[0].norm();
    sum += gradient;
  }
  result.of_mean = factor(sum / static_cast<double>(p.gradients.size()));
  result.of_sum = factor(sum);
  return result;
}

}  // namespace

std::vector<MeasuredParameter> measured(const Dump& dump) {
  const std::vector<MovedParameter>& parameters = dump.scale->parameters;
  const AllSlopes slopes = all_slopes(dump);
  const bool both = !slopes.losses.empty() && !slopes.objective.empty();
  std::vector<MeasuredParameter> all;
  for (size_t i = 0; i < parameters.size(); ++i) {
    all.push_back(measured(parameters[i], slopes.losses.empty() ? slopes.objective[i] : slopes.losses[i]));
    for (const auto& [term, of_all] : slopes.terms) all.back().terms[term] = of_all[i];
    if (both) all.back().loss = {slopes.losses[i], slopes.objective[i]};
    if (!slopes.reweighted.empty()) all.back().reweighted = {slopes.reweighted[i], slopes.objective[i]};
  }
  return all;
}

}  // namespace weft::verify
