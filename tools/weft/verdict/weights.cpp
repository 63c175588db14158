// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/verdict/weights.h"

#include <algorithm>

#include "tools/weft/verdict/expected_rounding.h"
#include "tools/weft/verdict/fraction.h"
#include "tools/weft/verdict/terms.h"

namespace weft::verify {
namespace {

// By how many times expected rounding the sum by these weights is off.
double error_of(const Matrix& dumped, Eigen::Index columns, const Terms& terms, const Eigen::VectorXd& weights,
                double epsilon) {
  constexpr int repetitions = 4;
  const Matrix exact = terms.sum(weights);
  ExpectedRounding expected(exact, columns, epsilon);
  for (int i = 0; i < repetitions; ++i) {
    const Rounding rounding{epsilon, std::mt19937_64(static_cast<uint64_t>(i))};
    Matrix inexact = Matrix::Zero(1, exact.size());
    for (Eigen::Index k = 0; k < terms.count(); ++k) {
      Matrix term = terms[k];
      rounding.apply(term);
      inexact += weights(k) * term;
    }
    expected.add(exact, inexact);
  }
  expected.finish(exact);
  return expected.error(dumped, exact);
}

std::string listed(const std::vector<std::string>& all) {
  std::string list;
  for (size_t i = 0; i < all.size(); ++i) list += (i == 0 ? "" : i + 1 == all.size() ? " and " : ", ") + all[i];
  return list;
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

// Ranks that were given the gradients of the same ranks, in order, if each is among those that it was given, and these
// weigh the same.
std::vector<std::vector<size_t>> groups(const std::vector<Weights>& of_ranks) {
  constexpr double precision = 1e-4;
  std::vector<std::vector<size_t>> given, all;
  for (const Weights& weights : of_ranks) {
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
std::string text(const std::vector<Weights>& of_ranks) {
  std::string all;
  for (size_t r = 0; r < of_ranks.size(); ++r) {
    const auto here = of_ranks.begin() + static_cast<std::ptrdiff_t>(r);
    if (std::find(of_ranks.begin(), here, *here) != here) continue;
    std::vector<std::string> same;
    for (size_t q = r; q < of_ranks.size(); ++q)
      if (of_ranks[q] == of_ranks[r]) same.push_back(std::to_string(q));
    if (same.size() == of_ranks.size()) return weights_text(of_ranks[r]);
    all += (all.empty() ? "on rank" : "; on rank") + std::string(same.size() == 1 ? " " : "s ") + listed(same) + " " +
           weights_text(of_ranks[r]);
  }
  return all;
}

}  // namespace

std::string weights_text(const Weights& weights) {
  const std::string relative = " times what they should", of = "the gradients of ",
                    passes = called("micro-batch", "micro-batches", weights.cols());
  if ((weights.array() == weights(0, 0)).all()) return "all gradients weigh " + fraction_text(weights(0, 0)) + relative;
  if (weights == weights.col(0).replicate(1, weights.cols()))
    return of + called("rank", "ranks", weights.rows()) + " weigh " + numbers(weights.col(0)) + relative;
  if (weights == weights.row(0).replicate(weights.rows(), 1))
    return of + passes + " weigh " + numbers(weights.row(0)) + relative;
  std::string all = of + passes + " weigh";
  for (Eigen::Index r = 0; r < weights.rows(); ++r)
    all += (r == 0 ? " " : "; ") + numbers(weights.row(r)) + (r == 0 ? relative : "") + " on rank " + std::to_string(r);
  return all;
}

Described described(const std::vector<Weights>& of_ranks, double error) {
  const auto apart = groups(of_ranks);
  if (apart.size() < 2) return {text(of_ranks), error};
  std::string all;
  for (const auto& group : apart) {
    all += all.empty() ? "reduced in groups of their own: ranks " : "; ";
    for (const size_t r : group) all += (r == group[0] ? "" : ", ") + std::to_string(r);
  }
  return {all, error, "reduce over the group of all ranks that have other samples"};
}

std::optional<Described> explained_by_weights(const ParameterEvidence& parameter, const Dump& dump) {
  const Observed dumped = observed(parameter);
  if (parameter.layout) return std::nullopt;
  std::vector<const Matrix*> of_all;
  for (const auto& of_rank : parameter.local)
    for (const Matrix& term : of_rank) of_all.push_back(&term);
  const Terms terms(std::move(of_all));
  if (!terms.tell()) return std::nullopt;
  const double should = dump.reducer == Reducer::mean ? 1.0 / dump.ranks : 1;
  const auto ranks = std::ssize(parameter.local), passes = std::ssize(parameter.local[0]);
  std::vector<Weights> of_ranks;
  double worst = 0;
  for (size_t r = 0; r < dumped.tensors.size(); ++r) {
    const Eigen::VectorXd weights = terms.fitted(dumped.tensors[r], should);
    const double error =
        error_of(dumped.tensors[r], dumped.columns[r], terms, should * weights, parameter.precision.epsilon);
    if (!(error <= limit)) return std::nullopt;
    worst = std::max(worst, error);
    of_ranks.push_back(weights.reshaped<Eigen::RowMajor>(ranks, passes));
  }
  return described(of_ranks, worst);
}

}  // namespace weft::verify
