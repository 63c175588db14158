// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/truth/picking.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tools/weft/truth/products.h"

namespace weft::verify {
namespace {

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

  // From the gradient with respect to scores.
  Picked picked(double value, const Matrix& by_scores) const {
    return {value, of.scale.is_learned ? of.rounding.sum(by_scores.cwiseProduct(products)) : 0, 0,
            of.scale.factor * product(by_scores, of.keys),
            of.scale.factor * product(by_scores, of.queries, Transposed::left)};
  }
  // What is picked if other positives are chosen and the same keys compete: of each query two scores count otherwise.
  Picked moved(Picked result, const Choice& from, const Choice& to) const {
    const auto count = [&](Eigen::Index i, Eigen::Index key, double weight) {
      if (key < 0) return;
      result.value -= weight * score(i, key);
      result.by_scale -= weight * products(i, key);
      result.by_bias -= weight;
      result.by_queries.row(i) -= weight * of.scale.factor * of.keys.row(key);
      result.by_keys.row(key) -= weight * of.scale.factor * of.queries.row(i);
    };
    for (Eigen::Index i = 0; i < products.rows(); ++i) {
      const auto query = static_cast<size_t>(i);
      if (from.positives[query] == to.positives[query]) continue;
      count(i, from.positives[query], -of.weight);
      count(i, to.positives[query], of.weight);
    }
    return result;
  }
  Picked softmax(const Choice& choice, bool positive_competes) const {
    Matrix by_scores(products.rows(), products.cols());
    double value = 0;
    for (Eigen::Index i = 0; i < products.rows(); ++i) {
      const Eigen::Index positive = choice.positives[static_cast<size_t>(i)],
                         self = choice.selves[static_cast<size_t>(i)];
      const auto competes = [&](Eigen::Index j) { return j != self && (positive_competes || j != positive); };
      double largest = -std::numeric_limits<double>::infinity(), sum = 0;
      for (Eigen::Index j = 0; j < products.cols(); ++j)
        if (competes(j)) largest = std::max(largest, score(i, j));
      if (!std::isfinite(largest)) {  // a single sample has no negatives
        by_scores.row(i).setZero();
        continue;
      }
      for (Eigen::Index j = 0; j < products.cols(); ++j) {
        by_scores(i, j) = competes(j) ? std::exp(score(i, j) - largest) : 0;
        sum += by_scores(i, j);
      }
      for (Eigen::Index j = 0; j < products.cols(); ++j)
        by_scores(i, j) = of.weight * of.rounding(by_scores(i, j) / sum);
      by_scores(i, positive) -= of.weight;
      value += of.weight * (largest + std::log(sum) - score(i, positive));
    }
    return picked(value, by_scores);
  }
  Picked sigmoids(const Choice& choice) const {
    Matrix by_scores(products.rows(), products.cols());
    double value = 0;
    for (Eigen::Index i = 0; i < products.rows(); ++i)
      for (Eigen::Index j = 0; j < products.cols(); ++j) {
        const double sign = j == choice.positives[static_cast<size_t>(i)] ? 1 : -1, z = -sign * score(i, j);
        value += of.weight * (std::max(z, 0.0) + std::log1p(std::exp(-std::abs(z))));
        by_scores(i, j) = -sign * of.weight * of.rounding(1 / (1 + std::exp(-z)));
      }
    Picked result = picked(value, by_scores);
    result.by_bias = of.rounding.sum(by_scores);
    return result;
  }
};

// `all`, as a lower precision stores them.
std::vector<Picked> rounded(std::vector<Picked> all, const Rounding& rounding) {
  for (Picked& each : all) rounding.apply(each.by_queries);
  return all;
}

}  // namespace

std::vector<Picked> by_softmax(const Queries& of, const std::vector<Choice>& choices, bool positive_competes) {
  const Scored scored(of);
  std::vector<Picked> all;
  for (const Choice& choice : choices) {
    const auto same_keys_compete = [&](const Choice& other) {
      return other.selves == choice.selves && (positive_competes || other.positives == choice.positives);
    };
    const auto like =
        static_cast<size_t>(std::find_if(choices.begin(), choices.end(), same_keys_compete) - choices.begin());
    all.push_back(like < all.size() ? scored.moved(all[like], choices[like], choice)
                                    : scored.softmax(choice, positive_competes));
  }
  return rounded(std::move(all), of.rounding);
}

std::vector<Picked> by_sigmoids(const Queries& of, const std::vector<Choice>& choices) {
  const Scored scored(of);
  std::vector<Picked> all = {scored.sigmoids(choices[0])};
  for (size_t c = 1; c < choices.size(); ++c) all.push_back(scored.moved(all[0], choices[0], choices[c]));
  return rounded(std::move(all), of.rounding);
}

}  // namespace weft::verify
