// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/explain/terms.h"

#include <algorithm>

namespace weft::verify {

Terms::Terms(std::vector<const Matrix*> terms) : terms_(std::move(terms)) {
  Eigen::MatrixXd products(count(), count());
  for (Eigen::Index i = 0; i < count(); ++i)
    for (Eigen::Index j = 0; j <= i; ++j) products(i, j) = products(j, i) = (*this)[i].cwiseProduct((*this)[j]).sum();
  solver_.compute(products);
}

Matrix Terms::sum(const Eigen::VectorXd& weights) const {
  Matrix all = Matrix::Zero(1, elements());
  for (Eigen::Index i = 0; i < count(); ++i) all += weights(i) * (*this)[i];
  return all;
}

Fitted Terms::fitted(const Matrix& sum, double epsilon) const {
  constexpr double far = 4;  // standard errors
  Eigen::VectorXd weights = Eigen::VectorXd::Zero(count());
  Matrix left = sum;
  for (int pass = 0; pass < 3; ++pass) {  // what is left of a solution of the squared problem is fitted again
    Eigen::VectorXd products(count());
    for (Eigen::Index i = 0; i < count(); ++i) products(i) = (*this)[i].cwiseProduct(left).sum();
    weights += solver_.solve(products);
    left = sum - this->sum(weights);
  }
  const Eigen::VectorXd variances = solver_.inverse().diagonal() * left.squaredNorm() / static_cast<double>(elements());
  // A number that is stored, such as one over the ranks, may have been a factor of all of it.
  return {weights, far * variances.cwiseMax(0).cwiseSqrt() + epsilon / 2 * weights.cwiseAbs()};
}

}  // namespace weft::verify
