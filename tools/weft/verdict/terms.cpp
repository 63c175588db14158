// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/verdict/terms.h"

#include <algorithm>

#include "tools/weft/verdict/fraction.h"

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

Eigen::VectorXd Terms::fitted(const Matrix& sum, double unit) const {
  constexpr double far = 4;  // standard errors
  constexpr double exact = 1e-9;
  Eigen::VectorXd weights = Eigen::VectorXd::Zero(count());
  Matrix left = sum;
  for (int pass = 0; pass < 3; ++pass) {  // what is left of a solution of the squared problem is fitted again
    Eigen::VectorXd products(count());
    for (Eigen::Index i = 0; i < count(); ++i) products(i) = (*this)[i].cwiseProduct(left).sum();
    weights += solver_.solve(products);
    left = sum - this->sum(weights);
  }
  const Eigen::ArrayXd errors =
      (solver_.inverse().diagonal().array() * left.squaredNorm() / static_cast<double>(elements())).sqrt();
  for (Eigen::Index i = 0; i < count(); ++i)
    weights(i) = as_fraction(weights(i) / unit, std::max(exact, far * errors(i) / unit));
  return weights;
}

}  // namespace weft::verify
