// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/truth/picking.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "tools/weft/truth/products.h"

namespace weft::verify {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Scored {
  const Queries& of;
  Matrix products;

  explicit Scored(const Queries& of) : of(of) {
    Matrix queries = of.queries;
    of.rounding.apply(queries);
    products = product(queries, of.keys, Transposed::right);
    of.rounding.apply(products);
  }
  double score(Eigen::Index i, Eigen::Index key) const { return of.scale.factor * products(i, key) + of.scale.bias; }

  // `slope` more of the gradient with respect to one score.
  void add(Picked& to, Eigen::Index i, Eigen::Index key, double slope) const {
    to.by_scale += slope * products(i, key);
    to.by_queries.row(i) += slope * of.scale.factor * of.keys.row(key);
    to.by_keys.row(key) += slope * of.scale.factor * of.queries.row(i);
  }
};

// Exponentials of the scores of keys that no choice leaves out are common to all choices. A choice adds those of keys
// that only others leave out: nothing is subtracted, so no digits are lost where one key is nearly the whole sum.
class Softmax {
 public:
  Softmax(const Queries& of, const std::vector<Choice>& choices, bool positive_competes)
      : of_(of),
        scored_(of),
        positive_competes_(positive_competes),
        common_(scored_.products.rows(), scored_.products.cols()) {
    for (const Choice& choice : choices) own_.push_back({choice, Eigen::VectorXd::Zero(common_.rows())});
    for (Eigen::Index i = 0; i < common_.rows(); ++i) fill(i);
  }
  std::vector<Picked> picked() const {
    const Matrix by_queries = product(common_, of_.keys);
    Eigen::VectorXd by_scale = Eigen::VectorXd::Zero(common_.rows());
    if (of_.scale.is_learned) {
      Matrix terms = common_.cwiseProduct(scored_.products);
      of_.rounding.apply(terms);
      by_scale = terms.rowwise().sum();
    }
    const double factor = of_.weight * of_.scale.factor;
    std::vector<Picked> all;
    std::vector<Matrix> by_keys;
    for (const Own& own : own_) {
      const auto factors = own.factors.asDiagonal();
      const auto like = std::find_if(own_.begin(), own_.end(), [&](const Own& o) { return o.factors == own.factors; });
      const auto same = static_cast<size_t>(like - own_.begin());
      by_keys.push_back(same < by_keys.size() ? by_keys[same]
                                              : product(common_, factors * of_.queries, Transposed::left));
      all.push_back({of_.weight * own.value, of_.weight * own.factors.dot(by_scale), 0, factor * (factors * by_queries),
                     factor * by_keys.back()});
      for (const auto& [query, key, slope] : own.slopes) scored_.add(all.back(), query, key, of_.weight * slope);
    }
    return all;
  }

 private:
  struct Slope {
    Eigen::Index query, key;
    double slope;
  };
  struct Own {  // of a choice
    const Choice& choice;
    Eigen::VectorXd factors;  // of each row's common exponentials
    std::vector<Slope> slopes = {};
    double value = 0;
  };

  std::set<Eigen::Index> left_out(const Choice& choice, Eigen::Index i) const {
    std::set<Eigen::Index> keys = {choice.selves[static_cast<size_t>(i)]};
    if (!positive_competes_) keys.insert(choice.positives[static_cast<size_t>(i)]);
    keys.erase(-1);
    return keys;
  }
  void fill(Eigen::Index i) {
    std::set<Eigen::Index> apart;
    for (const Own& own : own_) apart.merge(left_out(own.choice, i));
    auto row = common_.row(i);
    row = of_.scale.factor * scored_.products.row(i).array() + of_.scale.bias;
    for (const Eigen::Index key : apart) row(key) = -infinity;
    const double largest = row.maxCoeff();
    for (double& each : row) each = each == -infinity ? 0 : std::exp(each - largest);
    const double sum = row.sum();
    for (double& each : row) each = of_.rounding(each);
    for (Own& own : own_) {
      std::set<Eigen::Index> added = apart;
      for (const Eigen::Index key : left_out(own.choice, i)) added.erase(key);
      choose(i, own, added, largest, sum);
    }
  }
  // Of query `i`: `sum` is of the common exponentials, from which `largest` is subtracted.
  void choose(Eigen::Index i, Own& own, const std::set<Eigen::Index>& added, double largest, double sum) const {
    double highest = largest;
    for (const Eigen::Index key : added) highest = std::max(highest, scored_.score(i, key));
    if (highest == -infinity) return;  // a single sample has no negatives
    const double factor = std::exp(largest - highest);
    double total = factor * sum;
    for (const Eigen::Index key : added) total += std::exp(scored_.score(i, key) - highest);
    own.factors(i) = factor / total;
    for (const Eigen::Index key : added)
      own.slopes.push_back({i, key, of_.rounding(std::exp(scored_.score(i, key) - highest) / total)});
    const Eigen::Index positive = own.choice.positives[static_cast<size_t>(i)];
    own.slopes.push_back({i, positive, -1});
    own.value += highest + std::log(total) - scored_.score(i, positive);
  }

  const Queries& of_;
  const Scored scored_;
  const bool positive_competes_;
  Matrix common_;
  std::vector<Own> own_;
};

Picked sigmoids(const Queries& of, const Scored& scored, const Choice& choice) {
  Matrix by_scores(scored.products.rows(), scored.products.cols());
  double value = 0;
  for (Eigen::Index i = 0; i < by_scores.rows(); ++i)
    for (Eigen::Index j = 0; j < by_scores.cols(); ++j) {
      const double sign = j == choice.positives[static_cast<size_t>(i)] ? 1 : -1, z = -sign * scored.score(i, j);
      value += of.weight * (std::max(z, 0.0) + std::log1p(std::exp(-std::abs(z))));
      by_scores(i, j) = -sign * of.weight * of.rounding(1 / (1 + std::exp(-z)));
    }
  return {value, of.rounding.sum(by_scores.cwiseProduct(scored.products)), of.rounding.sum(by_scores),
          of.scale.factor * product(by_scores, of.keys),
          of.scale.factor * product(by_scores, of.queries, Transposed::left)};
}

// `all`, as a lower precision stores them.
std::vector<Picked> rounded(std::vector<Picked> all, const Rounding& rounding) {
  for (Picked& each : all) rounding.apply(each.by_queries);
  return all;
}

}  // namespace

std::vector<Picked> by_softmax(const Queries& of, const std::vector<Choice>& choices, bool positive_competes) {
  return rounded(Softmax(of, choices, positive_competes).picked(), of.rounding);
}

// log(1 + exp(-score)) - log(1 + exp(score)) = -score, so another positive changes two slopes of a query by one.
std::vector<Picked> by_sigmoids(const Queries& of, const std::vector<Choice>& choices) {
  const Scored scored(of);
  std::vector<Picked> all = {sigmoids(of, scored, choices[0])};
  const auto count = [&](Picked& to, Eigen::Index i, Eigen::Index key, double slope) {
    if (key < 0) return;
    to.value += slope * scored.score(i, key);
    to.by_bias += slope;
    scored.add(to, i, key, slope);
  };
  for (size_t c = 1; c < choices.size(); ++c) {
    all.push_back(all[0]);
    for (Eigen::Index i = 0; i < of.queries.rows(); ++i) {
      count(all[c], i, choices[0].positives[static_cast<size_t>(i)], of.weight);
      count(all[c], i, choices[c].positives[static_cast<size_t>(i)], -of.weight);
    }
  }
  return rounded(std::move(all), of.rounding);
}

}  // namespace weft::verify
