// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/slopes/slopes.h"

#include <cmath>

namespace weft::verify {

double noise_of(const MovedValues& values) {
  double largest = 0;
  for (const auto& x : values.moved.rowwise())
    largest = std::max(largest, std::abs(x[0] - 4 * x[1] + 6 * values.at_rest - 4 * x[2] + x[3]));
  return largest / std::sqrt(1 + 16 + 36 + 16 + 1);
}

// The five-point rule. It takes the difference of the smaller step, and a third of what is between that and the
// difference of the larger one, which bounds how far off it is itself.
Slopes slopes_of(const MovedValues& values, double step, double noise) {
  const Matrix& x = values.moved;
  const Eigen::VectorXd large = (x.col(3) - x.col(0)) / (2 * step), small = (x.col(2) - x.col(1)) / step,
                        correction = (small - large) / 3;
  const double of_one = noise * std::sqrt(64 + 64 + 1 + 1) / (6 * step);
  const double root = std::sqrt(static_cast<double>(x.rows()));
  return {small + correction, limit * root * of_one, root * correction.cwiseAbs().maxCoeff()};
}

// Of a gradient half of the digits are expected to be right, as after sums whose terms nearly cancel.
Slopes slopes_of(const Matrix& gradient, const Matrix& directions, double epsilon) {
  const Matrix terms = directions.array().rowwise() * gradient.row(0).array();
  return {terms.rowwise().sum(), std::sqrt(epsilon) * terms.norm(), 0};
}

double Factor::nearest() const {
  const double square = expected.along.squaredNorm();
  return square == 0 ? 0 : ours.along.dot(expected.along) / square;
}

}  // namespace weft::verify
