// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/verdict/step_causes.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tools/weft/explain/fraction.h"
#include "tools/weft/explain/lists.h"
#include "tools/weft/explain/weights.h"

namespace weft::verify {
namespace {

constexpr double as_good_as_equal = 1e-3;  // of fitted factors
constexpr double as_exact_as_stored = 1e-6;

StepCause named(const std::string& id, const std::string& variant, double error) {
  const Signature& found = signature(id);
  return {&found, variant, error, found.repair};
}
StepCause told(const Described& found) { return {nullptr, found.text, found.error, found.repair}; }

bool near(double a, double b) { return std::abs(a - b) <= as_good_as_equal * std::abs(b); }

}  // namespace

Distance distance_of(const StepParameter& parameter, const Matrix& found, double factor) {
  const Matrix truth = factor * parameter.truth;
  std::vector<Matrix> inexact;
  std::vector<const double*> numbers;
  for (const Matrix& each : parameter.inexact) inexact.push_back(factor * each);
  for (const Matrix& each : inexact) numbers.push_back(each.data());
  Matrix squares = Matrix::Zero(1, truth.size());
  int terms = 0;
  for (const auto& of_rank : parameter.local)
    for (const Matrix& term : of_rank) {
      if (term.size() != truth.size()) continue;
      squares += (factor * term).cwiseAbs2();
      ++terms;
    }
  return distance<double>(found.data(), {truth.data(), numbers, squares.data(), terms, truth.size(), parameter.rows,
                                         parameter.precision.epsilon});
}

namespace {

double error_of(const StepParameter& parameter, const Matrix& found, double factor = 1) {
  return distance_of(parameter, found, factor).error;
}

// The local gradients of parameters that all ranks have, as terms of sums of all of them together: each parameter
// counts by its own rounding.
class Locals {
 public:
  explicit Locals(const Step& step) : step_(step) {
    for (const StepParameter& each : step.parameters)
      for (const auto& of_rank : each.local) {
        complete_ &= !of_rank.empty() && std::ranges::all_of(of_rank, [&](const Matrix& term) {
          return term.size() == each.truth.size();  // no slice
        });
        same_passes_ &= of_rank.size() == step.parameters[0].local[0].size();
      }
    if (!complete_) return;
    passes_ = same_passes_ ? std::ssize(step.parameters[0].local[0]) : 1;
    for (const StepParameter& each : step.parameters) {
      const Matrix moved = each.inexact[0] - each.truth;
      const double rounding = moved.norm() / 2 + each.precision.epsilon / 2 * each.truth.norm();
      scales_.push_back(rounding > 0 ? std::sqrt(static_cast<double>(each.truth.size())) / rounding : 1);
    }
    for (Eigen::Index t = 0; t < count(); ++t)
      joined_.push_back(joined([&](const StepParameter& each) { return term(each, t); }));
    std::vector<const Matrix*> pointers;
    for (const Matrix& each : joined_) pointers.push_back(&each);
    terms_.emplace(std::move(pointers));
  }

  bool complete() const { return complete_; }
  Eigen::Index count() const { return step_.ranks * passes_; }
  Eigen::Index passes() const { return passes_; }
  Matrix term(const StepParameter& parameter, Eigen::Index t) const {
    const auto& of_rank = parameter.local[static_cast<size_t>(t / passes_)];
    if (same_passes_) return of_rank[static_cast<size_t>(t % passes_)];
    return std::accumulate(of_rank.begin() + 1, of_rank.end(), of_rank[0]);
  }
  Matrix sum(const StepParameter& parameter, const Eigen::VectorXd& weights) const {
    Matrix all = Matrix::Zero(1, parameter.truth.size());
    for (Eigen::Index t = 0; t < count(); ++t) all += weights(t) * term(parameter, t);
    return all;
  }

  // What they weigh in the truth, as multiples of `unit`; none if they do not explain it.
  struct Fit {
    Weights weights;
    double error;
  };
  std::optional<Fit> fit(double unit) const {
    if (!terms_ || !terms_->tell()) return std::nullopt;
    double epsilon = 0;
    for (const StepParameter& each : step_.parameters) epsilon = std::max(epsilon, each.precision.epsilon);
    const auto [values, known_to] =
        terms_->fitted(joined([](const StepParameter& each) { return each.truth; }), epsilon);
    const Weights weights = weights_of({values / unit, known_to / unit}, step_.ranks);
    double worst = 0;
    for (const StepParameter& each : step_.parameters) {
      const Eigen::VectorXd of_terms = unit * weights.values.reshaped<Eigen::RowMajor>();
      // Rounding is that of the parameter, which has the sum's size.
      worst = std::max(worst, error_of(each, 2 * each.truth - sum(each, of_terms)));
    }
    if (!(worst <= limit)) return std::nullopt;
    return Fit{weights, worst};
  }

 private:
  template <class Of> Matrix joined(Of of) const {
    std::vector<double> all;
    for (size_t p = 0; p < step_.parameters.size(); ++p) {
      const Matrix each = scales_[p] * of(step_.parameters[p]);
      all.insert(all.end(), each.data(), each.data() + each.size());
    }
    return Eigen::Map<const Matrix>(all.data(), 1, std::ssize(all));
  }

  const Step& step_;
  bool complete_ = true, same_passes_ = true;
  Eigen::Index passes_ = 1;
  std::vector<double> scales_;
  std::vector<Matrix> joined_;
  std::optional<Terms> terms_;
};

Dump counts_of(const Step& step, Eigen::Index passes) {
  Dump dump;
  dump.ranks = step.ranks;
  dump.micro_batches = static_cast<int>(passes);
  if (std::ssize(step.rows) == step.ranks) dump.rows = step.rows;
  for (const Count& each : step.counts)
    if (each.values.cols() == 1 || each.values.cols() == passes) dump.counts.push_back(each);
  return dump;
}

// Every gradient, on every rank, is the truth times one number, which is not zero: then nothing is known of them.
std::optional<StepCause> one_factor(const Step& step, const Dump& counts) {
  double products = 0, squares = 0, error = 0;
  for (const StepParameter& each : step.parameters)
    for (const Matrix& found : each.reduced) {
      products += found.cwiseProduct(each.truth).sum();
      squares += each.truth.squaredNorm();
    }
  const double factor = products / squares;
  for (const StepParameter& each : step.parameters)
    for (const Matrix& found : each.reduced) error = std::max(error, error_of(each, found, factor));
  if (!(error <= limit) || products == 0) return std::nullopt;
  std::string text = fraction_text(as_fraction(factor, as_good_as_equal * std::abs(factor))) + " of the truth",
              id = "S33";
  const auto compare = [&](const char* name, auto count, const char* signature) {
    const auto n = static_cast<double>(count);
    if (count < 2 || !(near(factor, n) || near(factor, 1 / n))) return;
    text += std::string(factor > 1 ? ", " : ", one over ") + name;
    if (id == "S33") id = signature;
  };
  compare("the number of ranks", step.ranks, factor > 1 ? "S8" : step.others_right ? "S3" : "S9");
  compare("the number of micro-batches", counts.micro_batches, "S16");
  if (id == "S33") {
    const double known_to = std::abs(factor) * std::max(as_exact_as_stored, 2 * step.parameters[0].precision.epsilon);
    const auto of_counts =
        formulas({Eigen::MatrixXd::Constant(1, 1, factor), Eigen::MatrixXd::Constant(1, 1, known_to)}, counts);
    if (!of_counts.empty()) text += ": " + listed(of_counts, ", or ");
  }
  return named(id, text, error);
}

Dump dump_of(const Step& step, const Locals& locals, Reducer reducer) {
  Dump dump = counts_of(step, locals.passes());
  dump.reducer = reducer;
  for (const StepParameter& each : step.parameters) {
    ParameterEvidence& parameter = dump.parameters.emplace_back();
    parameter.name = each.name;
    parameter.precision = each.precision;
    parameter.reduced = each.reduced;
    const Shape shape{each.rows, each.truth.size() / each.rows};
    parameter.local_shapes = parameter.reduced_shapes = std::vector<Shape>(static_cast<size_t>(step.ranks), shape);
    for (Eigen::Index t = 0; t < locals.count(); ++t) {
      if (t % locals.passes() == 0) parameter.local.emplace_back();
      parameter.local.back().push_back(locals.term(each, t));
    }
  }
  return dump;
}

// What the gradients before and after a reducer say of it, which should make this of them.
struct OfReducer {
  bool right;
  std::optional<StepCause> cause;
};
OfReducer of_reducer(const Dump& dump) {
  const std::vector<Verdict> all = verdicts(dump);
  for (const Verdict& each : all)
    if (each.outcome == Outcome::wrong && each.best)
      return {false, named(each.best->signature->id, each.best->variant, each.best->error)};
  for (const Verdict& each : all)
    if (each.outcome == Outcome::wrong && each.described) return {false, told(*each.described)};
  return {overall(all) != Outcome::wrong, std::nullopt};
}

// Whether the sum of all local gradients times this is the truth, or a multiple of it: that of a step that clips.
bool right(const Step& step, const Locals& locals, double unit, bool or_multiple = false) {
  const Eigen::VectorXd weights = Eigen::VectorXd::Constant(locals.count(), unit);
  double products = 0, squares = 0;
  for (const StepParameter& each : step.parameters) {
    products += locals.sum(each, weights).cwiseProduct(each.truth).sum();
    squares += each.truth.squaredNorm();
  }
  const double factor = or_multiple ? products / squares : 1;
  return std::ranges::all_of(step.parameters, [&](const StepParameter& each) {
    return error_of(each, locals.sum(each, weights), factor) <= limit;
  });
}

// The local gradients are wrong by weights: of ranks, micro-batches, or both.
std::optional<StepCause> wrong_weights(const Dump& dump, const Locals& locals, double unit) {
  const auto fit = locals.fit(unit);
  if (!fit) return std::nullopt;
  // What is no part of the truth weighs nothing, up to rounding, and has no weight by which it is wrong.
  const auto& [values, known_to] = fit->weights;
  const auto is_known = known_to.array().isFinite();
  if ((is_known && values.array().abs() <= known_to.array().max(as_exact_as_stored)).any()) return std::nullopt;
  const Weights has{values.cwiseInverse(),  // instead of 1
                    known_to.array() / values.array().square()};
  if (!has.values.allFinite()) return std::nullopt;
  const auto all_rows = static_cast<double>(std::accumulate(dump.rows.begin(), dump.rows.end(), int64_t{0}));
  bool mean_of_means = std::ssize(dump.rows) == dump.ranks;
  for (Eigen::Index r = 0; mean_of_means && r < has.values.rows(); ++r)
    for (const double weight : has.values.row(r))
      mean_of_means &= near(weight * static_cast<double>(dump.rows[static_cast<size_t>(r)]) * dump.ranks, all_rows);
  if (mean_of_means) return named("S12", weights_text(has, dump), fit->error);
  return told({weights_text(has, dump), fit->error});
}

StepCause wrong_before_reduction(bool reducer_right) {
  return told({reducer_right ? "wrong before the reduction" : "wrong before the reduction, and by it", 0,
               "look at what ranks exchange in the forward pass: each collective there needs its adjoint in the "
               "backward pass"});
}

}  // namespace

StepCause lost_gradients(const std::vector<std::string>& collectives, double error) {
  const std::string all = listed(collectives);
  if (std::ranges::all_of(collectives, [](const std::string& each) { return each.starts_with("all_gather"); }))
    return named("S1", all, error);
  return told({"no gradient passes through " + all, error,
               "use collectives that have a gradient: the adjoint of a sum over ranks is the sum of what all return"});
}

std::optional<StepCause> cause_of(const Step& step) {
  const Locals locals(step);
  if (auto factor = one_factor(step, counts_of(step, locals.passes()))) return factor;
  if (!locals.complete() || std::ranges::any_of(step.parameters, [&](const StepParameter& each) {
        return std::ssize(each.reduced) != step.ranks;
      }))
    return std::nullopt;
  const double mean = 1.0 / step.ranks;
  for (const auto& [reducer, unit] : {std::pair{Reducer::mean, mean}, std::pair{Reducer::sum, 1.0}})
    if (right(step, locals, unit)) return of_reducer(dump_of(step, locals, reducer)).cause;
  if (right(step, locals, mean, true))
    if (auto cause = of_reducer(dump_of(step, locals, Reducer::mean)).cause) return cause;
  for (const auto& [reducer, unit] : {std::pair{Reducer::mean, mean}, std::pair{Reducer::sum, 1.0}}) {
    const Dump dump = dump_of(step, locals, reducer);
    if (!of_reducer(dump).right) continue;
    auto cause = wrong_weights(dump, locals, unit);
    return cause ? cause : wrong_before_reduction(true);
  }
  auto cause = wrong_weights(dump_of(step, locals, Reducer::mean), locals, mean);
  return cause ? cause : wrong_before_reduction(false);
}

}  // namespace weft::verify
