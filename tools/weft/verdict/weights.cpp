// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/verdict/weights.h"

#include <Eigen/QR>
#include <algorithm>

#include "tools/weft/verdict/expected_rounding.h"
#include "tools/weft/verdict/fraction.h"

namespace weft::verify {
namespace {

using Weights = Eigen::MatrixXd;  // by rank and micro-batch, as multiples of what they should be

// The local gradients of all ranks and micro-batches, and how they go into a sum.
class Terms {
 public:
  explicit Terms(const ParameterEvidence& parameter) : epsilon_(parameter.precision.epsilon) {
    for (const auto& of_rank : parameter.local)
      for (const Matrix& term : of_rank) terms_.push_back(&term);
    Eigen::MatrixXd products(count(), count());
    for (Eigen::Index i = 0; i < count(); ++i)
      for (Eigen::Index j = 0; j <= i; ++j) products(i, j) = products(j, i) = at(i).cwiseProduct(at(j)).sum();
    solver_.compute(products);
  }

  Eigen::Index count() const { return std::ssize(terms_); }
  // Few elements are explained by many weights, and terms that depend on each other by many sets of them.
  bool tell() const { return at(0).size() >= 4 * count() && solver_.rank() == count(); }

  Matrix sum(const Eigen::VectorXd& weights) const {
    Matrix all = Matrix::Zero(1, at(0).size());
    for (Eigen::Index i = 0; i < count(); ++i) all += weights(i) * at(i);
    return all;
  }

  // By least squares, as short fractions of a unit where these are as near as the fit can tell.
  Eigen::VectorXd fitted(const Matrix& target, double unit) const {
    constexpr double far = 4;  // standard errors
    constexpr double exact = 1e-9;
    Eigen::VectorXd weights = Eigen::VectorXd::Zero(count());
    Matrix left = target;
    for (int pass = 0; pass < 3; ++pass) {  // what is left of a solution of the squared problem is fitted again
      Eigen::VectorXd products(count());
      for (Eigen::Index i = 0; i < count(); ++i) products(i) = at(i).cwiseProduct(left).sum();
      weights += solver_.solve(products);
      left = target - sum(weights);
    }
    const Eigen::ArrayXd errors =
        (solver_.inverse().diagonal().array() * left.squaredNorm() / static_cast<double>(target.size())).sqrt();
    for (Eigen::Index i = 0; i < count(); ++i)
      weights(i) = as_fraction(weights(i) / unit, std::max(exact, far * errors(i) / unit));
    return weights;
  }

  // By how many times expected rounding the sum by these weights is off.
  double error(const Matrix& target, Eigen::Index columns, const Eigen::VectorXd& weights) const {
    constexpr int repetitions = 4;
    const Matrix exact = sum(weights);
    ExpectedRounding expected(exact, columns, epsilon_);
    for (int i = 0; i < repetitions; ++i) {
      const Rounding rounding{epsilon_, std::mt19937_64(static_cast<uint64_t>(i))};
      Matrix inexact = Matrix::Zero(1, exact.size());
      for (Eigen::Index k = 0; k < count(); ++k) {
        Matrix term = at(k);
        rounding.apply(term);
        inexact += weights(k) * term;
      }
      expected.add(exact, inexact);
    }
    expected.finish(exact);
    return expected.error(target, exact);
  }

 private:
  const Matrix& at(Eigen::Index i) const { return *terms_[static_cast<size_t>(i)]; }

  double epsilon_;
  std::vector<const Matrix*> terms_;
  Eigen::ColPivHouseholderQR<Eigen::MatrixXd> solver_;  // of the terms' products with each other
};

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

std::string text(const Weights& weights) {
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

// Ranks that were given the same are told together.
std::string text(const std::vector<Weights>& of_ranks) {
  std::string all;
  for (size_t r = 0; r < of_ranks.size(); ++r) {
    const auto here = of_ranks.begin() + static_cast<std::ptrdiff_t>(r);
    if (std::find(of_ranks.begin(), here, *here) != here) continue;
    std::vector<std::string> same;
    for (size_t q = r; q < of_ranks.size(); ++q)
      if (of_ranks[q] == of_ranks[r]) same.push_back(std::to_string(q));
    if (same.size() == of_ranks.size()) return text(of_ranks[r]);
    all += (all.empty() ? "on rank" : "; on rank") + std::string(same.size() == 1 ? " " : "s ") + listed(same) + " " +
           text(of_ranks[r]);
  }
  return all;
}

}  // namespace

std::optional<Described> explained_by_weights(const ParameterEvidence& parameter, const Dump& dump) {
  const Observed dumped = observed(parameter);
  if (parameter.layout) return std::nullopt;
  const Terms terms(parameter);
  if (!terms.tell()) return std::nullopt;
  const double should = dump.reducer == Reducer::mean ? 1.0 / dump.ranks : 1;
  const auto ranks = std::ssize(parameter.local), passes = std::ssize(parameter.local[0]);
  std::vector<Weights> of_ranks;
  double worst = 0;
  for (size_t r = 0; r < dumped.tensors.size(); ++r) {
    const Eigen::VectorXd weights = terms.fitted(dumped.tensors[r], should);
    const double error = terms.error(dumped.tensors[r], dumped.columns[r], should * weights);
    if (!(error <= limit)) return std::nullopt;
    worst = std::max(worst, error);
    of_ranks.push_back(weights.reshaped<Eigen::RowMajor>(ranks, passes));
  }
  return Described{text(of_ranks), worst};
}

}  // namespace weft::verify
