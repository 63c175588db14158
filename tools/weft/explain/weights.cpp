// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/explain/weights.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tools/weft/explain/clipped.h"
#include "tools/weft/explain/fraction.h"
#include "tools/weft/explain/lists.h"

namespace weft::verify {
namespace {

constexpr double exact = 1e-9;

// Numbers that cannot be told apart become their mean, in which the exact ones count most.
template <class Cells> bool made_one(Cells values, Cells known_to) {
  const Eigen::ArrayXXd precision = known_to.array().max(exact).inverse().square();
  if (precision.sum() == 0) return true;  // none is known
  const double mean = (values.array() * precision).sum() / precision.sum();
  if (((values.array() - mean).abs() > known_to.array().max(exact)).any()) return false;
  values.setConstant(mean);
  known_to.setConstant(known_to.minCoeff());
  return true;
}

// If all are, or those of each rank, or of each micro-batch.
void make_one(Weights& weights) {
  if (made_one<Eigen::Ref<Eigen::MatrixXd>>(weights.values, weights.known_to)) return;
  Weights by_rank = weights, by_pass = weights;
  bool of_ranks = true, of_passes = true;
  for (Eigen::Index r = 0; r < weights.values.rows(); ++r)
    of_ranks &= made_one(by_rank.values.row(r), by_rank.known_to.row(r));
  for (Eigen::Index k = 0; k < weights.values.cols(); ++k)
    of_passes &= made_one(by_pass.values.col(k), by_pass.known_to.col(k));
  if (of_ranks) weights = by_rank;
  if (of_passes && !of_ranks) weights = by_pass;
}

// As short fractions, where these are as near as the fit can tell.
Eigen::MatrixXd shown(const Weights& weights) {
  return weights.values.binaryExpr(weights.known_to, [](double value, double known_to) {
    return std::isfinite(known_to) ? as_fraction(value, std::max(exact, known_to)) : value;
  });
}

// Ranks that were given the same, as far as the fit can tell, have the weights of the first of them.
void make_one(std::vector<Weights>& of_ranks) {
  for (size_t r = 1; r < of_ranks.size(); ++r)
    for (size_t q = 0; q < r; ++q) {
      const Eigen::ArrayXXd apart = (of_ranks[r].values - of_ranks[q].values).array().abs();
      if ((apart > (of_ranks[r].known_to + of_ranks[q].known_to).array().max(exact)).any()) continue;
      of_ranks[r] = of_ranks[q];
      break;
    }
}

template <class Row> std::string numbers(const Row& row) {
  std::vector<std::string> all;
  for (const double weight : row) all.push_back(fraction_text(weight));
  return listed(all);
}

// "ranks 0 to 2", "micro-batch 0"
std::string called(const std::string& one, const std::string& several, Eigen::Index count) {
  return count == 1 ? one + " 0" : several + " 0 to " + std::to_string(count - 1);
}

// Of weights by micro-batch: " (each is 1/2 times the one after it)", as those of a buffer that is multiplied by a
// number in every pass.
std::string series_text(const Eigen::RowVectorXd& row) {
  constexpr double near = 1e-6;
  if (row.size() < 3 || (row.array() <= 0).any()) return "";
  const double ratio = row(0) / row(1);
  for (Eigen::Index k = 1; k + 1 < row.size(); ++k)
    if (std::abs(row(k) / row(k + 1) - ratio) > near * ratio) return "";
  return " (each is " + fraction_text(as_fraction(ratio, near)) + " times the one after it)";
}

// Of one factor: ": 2^10, such as the scale of a loss".
std::string scale_text(double factor) {
  constexpr double smallest = 3;
  const double power = std::log2(factor);
  if (power != std::round(power) || std::abs(power) < smallest) return "";
  return ": 2^" + std::to_string(static_cast<int>(power)) + ", such as the scale of a loss";
}

// Which gradients weigh how much, without what that is a formula of.
std::string plain_text(const Eigen::MatrixXd& weights) {
  const std::string relative = " times what they should", of = "the gradients of ",
                    passes = called("micro-batch", "micro-batches", weights.cols());
  if ((weights.array() == weights(0, 0)).all()) return "all gradients weigh " + fraction_text(weights(0, 0)) + relative;
  if (weights == weights.col(0).replicate(1, weights.cols()))
    return of + called("rank", "ranks", weights.rows()) + " weigh " + numbers(weights.col(0)) + relative;
  if (weights == weights.row(0).replicate(weights.rows(), 1))
    return of + passes + " weigh " + numbers(weights.row(0)) + relative + series_text(weights.row(0));
  std::string all = of + passes + " weigh";
  for (Eigen::Index r = 0; r < weights.rows(); ++r)
    all += (r == 0 ? " " : "; ") + numbers(weights.row(r)) + (r == 0 ? relative : "") + " on rank " + std::to_string(r);
  return all;
}

// Ranks that were given the gradients of the same ranks, in order, if each is among those that it was given, and these
// weigh the same.
std::vector<std::vector<size_t>> groups(const std::vector<Weights>& of_ranks) {
  constexpr double precision = 1e-4;
  std::vector<std::vector<size_t>> given, all;
  for (const Weights& each : of_ranks) {
    const Eigen::MatrixXd weights = shown(each);
    given.emplace_back();
    for (Eigen::Index r = 0; r < weights.rows(); ++r) {
      if (weights.row(r).isZero(precision)) continue;
      if (!weights.row(r).isConstant(weights.maxCoeff(), precision)) return {};
      given.back().push_back(static_cast<size_t>(r));
    }
  }
  for (const std::vector<size_t>& group : given) {
    std::vector<size_t> members;
    for (size_t r = 0; r < given.size(); ++r)
      if (given[r] == group) members.push_back(r);
    if (members != group) return {};
    if (std::ranges::find(all, group) == all.end()) all.push_back(group);
  }
  return all;
}

// Ranks that were given the same are told together.
std::string text(const std::vector<Weights>& of_ranks, const Dump& dump) {
  std::vector<std::string> all;
  for (const Weights& each : of_ranks) all.push_back(plain_text(shown(each)));
  return all == std::vector(all.size(), all[0]) ? weights_text(of_ranks[0], dump) : told_by_rank(all);
}

Described described(const std::vector<Weights>& of_ranks, const Dump& dump, double error) {
  const auto apart = groups(of_ranks);
  if (apart.size() < 2) return {text(of_ranks, dump), error};
  std::string all;
  for (const auto& group : apart) {
    all += all.empty() ? "reduced in groups of their own: ranks " : "; ";
    for (const size_t r : group) all += (r == group[0] ? "" : ", ") + std::to_string(r);
  }
  return {all, error, "reduce over the group of all ranks that have other samples"};
}

// What a rank has is made of these, which it should have been the sum of.
using Parts = std::function<std::vector<Matrix>(const ParameterEvidence&, size_t rank)>;

// Parts that are zero have no weight.
std::optional<Weights> fitted(const Matrix& made, const std::vector<Matrix>& parts, Eigen::Index ranks,
                              double epsilon) {
  std::vector<const Matrix*> there;
  for (const Matrix& each : parts)
    if (!each.isZero(0)) there.push_back(&each);
  if (there.empty()) return std::nullopt;
  const Terms terms(there);
  if (!terms.tell()) return std::nullopt;
  const Fitted of_them = terms.fitted(made, epsilon);
  Fitted all{Eigen::VectorXd::Ones(std::ssize(parts)),
             Eigen::VectorXd::Constant(std::ssize(parts), std::numeric_limits<double>::infinity())};
  for (Eigen::Index i = 0, next = 0; i < std::ssize(parts); ++i) {
    if (parts[static_cast<size_t>(i)].isZero(0)) continue;
    all.values(i) = of_them.values(next);
    all.known_to(i) = of_them.known_to(next++);
  }
  return weights_of(all, ranks);
}

struct FitOfRanks {
  std::vector<Weights> of_ranks;
  double error;
};
std::optional<FitOfRanks> fitted(const Given& given, Eigen::Index ranks, const Parts& parts) {
  FitOfRanks fit{{}, 0};
  for (size_t q = 0; q < given.ranks(); ++q) {
    const Matrix& made = given.made.tensors[q];
    auto weights = made.size() == 0 ? Weights{Eigen::MatrixXd::Ones(ranks, 1), Eigen::MatrixXd::Constant(ranks, 1, 1)}
                                    : fitted(made, parts(given.parameter, q), ranks, given.parameter.precision.epsilon);
    if (!weights) return std::nullopt;
    fit.of_ranks.push_back(*weights);
  }
  make_one(fit.of_ranks);
  fit.error = given.error([&](const ParameterEvidence& of) {
    std::vector<Matrix> all;
    for (size_t q = 0; q < given.ranks(); ++q) {
      const std::vector<Matrix> of_rank = parts(of, q);
      const Eigen::VectorXd weights = fit.of_ranks[q].values.reshaped<Eigen::RowMajor>();
      Matrix sum = Matrix::Zero(1, given.made.tensors[q].size());
      for (size_t i = 0; i < of_rank.size(); ++i) sum += weights(static_cast<Eigen::Index>(i)) * of_rank[i];
      all.push_back(sum);
    }
    return all;
  });
  if (!(fit.error <= limit)) return std::nullopt;
  return fit;
}

}  // namespace

Weights weights_of(const Fitted& fitted, Eigen::Index ranks) {
  const Eigen::Index passes = fitted.values.size() / ranks;
  Weights weights{fitted.values.reshaped<Eigen::RowMajor>(ranks, passes),
                  fitted.known_to.reshaped<Eigen::RowMajor>(ranks, passes)};
  make_one(weights);
  return weights;
}

std::string weights_text(const Weights& weights, const Dump& dump) {
  const std::vector<std::string> all = formulas(weights, dump);
  constexpr size_t most = 3;
  const std::string text = plain_text(shown(weights));
  if (!all.empty() && all.size() <= most) return text + ": " + listed(all, ", or ");
  return text + (weights.values.size() == 1 && all.empty() ? scale_text(shown(weights)(0, 0)) : "");
}

std::vector<Described> by_one_factor(const Given& given) {
  const auto fit = fitted(given, 1, [&](const ParameterEvidence& of, size_t rank) {
    return std::vector<Matrix>{should_be(of, given.dump)[rank]};
  });
  if (!fit) return {};
  return {described(fit->of_ranks, given.dump, fit->error)};
}

std::vector<Described> by_uses(const Given& given) {
  const auto& uses = given.parameter.uses;
  if (uses.size() < 2) return {};
  const auto fit = fitted(given, 1, [&](const ParameterEvidence& of, size_t rank) {
    std::vector<Matrix> all;
    for (const auto& [name, by_rank] : of.uses) {
      ParameterEvidence of_use = of;
      of_use.local = by_rank;
      all.push_back(should_be(of_use, given.dump)[rank]);
    }
    return all;
  });
  if (!fit) return {};
  std::vector<std::string> of_ranks, names;
  for (const auto& use : uses) names.push_back(use.first);
  for (const Weights& each : fit->of_ranks)
    of_ranks.push_back("the uses " + listed(names) + " weigh " + numbers(shown(each).row(0)) +
                       " times what they should");
  return {{told_by_rank(of_ranks), fit->error, "add up the gradients of all uses once, before the reducer takes them"}};
}

std::vector<Described> by_weights(const Given& given) {
  const auto fit = fitted(given, std::ssize(given.parameter.local), [&](const ParameterEvidence& of, size_t rank) {
    return contributions(of, given.dump, rank);
  });
  if (!fit) return {};
  if (auto clipped = clipped_before(given, fit->of_ranks)) return {{*clipped, fit->error, clipping_repair}};
  return {described(fit->of_ranks, given.dump, fit->error)};
}

}  // namespace weft::verify
