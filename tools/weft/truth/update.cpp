// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/truth/update.h"

#include <algorithm>
#include <cmath>

namespace weft::verify {
namespace {

double adjusted(OptimizerRule::Adjust adjust, const Matrix& x) {
  const auto rows = static_cast<double>(x.rows()), columns = static_cast<double>(x.cols());
  switch (adjust) {
    case OptimizerRule::Adjust::none: return 1;
    case OptimizerRule::Adjust::original: return std::sqrt(std::max(1.0, rows / columns));
    default: return 0.2 * std::sqrt(std::max(rows, columns));
  }
}

// Each term of a product is off by a rounding, as those of its sums are.
Matrix product(Matrix a, Matrix b, const Rounding& rounding) {
  rounding.apply(a);
  rounding.apply(b);
  return a * b;
}

// The iteration of Newton and Schulz, whose singular values go towards 1.
Matrix orthogonal(const OptimizerRule& rule, const Matrix& gradient, const Rounding& rounding) {
  constexpr double least_norm = 1e-7;
  const auto [a, b, c] = rule.coefficients;
  Matrix x = gradient / std::max(gradient.norm(), least_norm);
  const bool wide = x.rows() <= x.cols();
  for (int i = 0; i < rule.iterations; ++i) {
    const Matrix square = wide ? product(x, x.transpose(), rounding) : product(x.transpose(), x, rounding);
    const Matrix polynomial = b * square + c * product(square, square, rounding);
    x = a * x + (wide ? product(polynomial, x, rounding) : product(x, polynomial, rounding));
  }
  return x;
}

}  // namespace

Matrix update(const OptimizerRule& rule, const Matrix& gradient, const Rounding& rounding) {
  switch (rule.kind) {
    case OptimizerRule::Kind::sgd: return -rule.rate * gradient;
    case OptimizerRule::Kind::adamw:
      return -rule.rate * (gradient.array() / (gradient.array().abs() + rule.epsilon)).matrix();
    default: return -rule.rate * adjusted(rule.adjust, gradient) * orthogonal(rule, gradient, rounding);
  }
}

}  // namespace weft::verify
