// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/verdict/expected_rounding.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace weft::verify {
namespace {

using InRows = Eigen::Map<const Matrix>;

InRows in_rows(const Matrix& x, Eigen::Index columns) {
  return {x.data(), columns == 0 ? 0 : x.size() / columns, columns};
}

// A mean square of few samples may be too small by chance, and the largest of many parts is off by more than is usual:
// by the less, the more elements each of them has.
double caution(double samples) { return 1 + 4 / samples; }
double caution(double samples, Eigen::Index parts, Eigen::Index elements_of_each) {
  const auto elements = static_cast<double>(elements_of_each);
  return caution(samples * elements) * (1 + std::sqrt(2 * std::log(static_cast<double>(parts)) / elements));
}

// The factor of one tensor that is nearest to another, less one.
double common_part(const Matrix& difference, const Matrix& of) {
  return difference.cwiseProduct(of).sum() / of.squaredNorm();
}

double multiple(double distance, double expected) { return distance == 0 ? 0 : distance / expected; }

}  // namespace

ExpectedRounding::ExpectedRounding(const Matrix& exact, Eigen::Index columns, double epsilon) : epsilon_(epsilon) {
  columns = std::max<Eigen::Index>(columns, 1);
  squares_ = Matrix::Zero(exact.size() / columns, columns);
}

void ExpectedRounding::add(const Matrix& exact, const Matrix& rounded) {
  ++samples_;
  const Matrix difference = rounded - exact;
  squares_ += in_rows(difference, squares_.cols()).cwiseAbs2();
  whole_ += difference.squaredNorm();
  if (exact.squaredNorm() > 0) factor_ += std::pow(common_part(difference, exact), 2);
}

// Few samples say little of one element, so those of its row and column count, too; and storing it costs something.
void ExpectedRounding::finish(const Matrix& exact) {
  constexpr double weight = 4;  // of the neighbours, in samples
  const double samples = samples_;
  const InRows values = in_rows(exact, squares_.cols());
  const Eigen::VectorXd of_rows = squares_.rowwise().mean() / samples;
  const Eigen::RowVectorXd of_columns = squares_.colwise().mean() / samples;
  const bool one_row = squares_.rows() == 1, one_column = squares_.cols() == 1;
  for (Eigen::Index i = 0; i < squares_.rows(); ++i)
    for (Eigen::Index j = 0; j < squares_.cols(); ++j) {
      const double neighbours = one_row ? of_rows[i] : one_column ? of_columns[j] : std::min(of_rows[i], of_columns[j]);
      const double stored = std::pow(epsilon_ * values(i, j), 2);
      squares_(i, j) = std::max((squares_(i, j) + weight * neighbours) / (samples + weight), stored);
    }
  const double all = samples * static_cast<double>(exact.size());
  whole_ = std::max(caution(all) * std::sqrt(whole_ / samples), epsilon_ * exact.norm());
  const double square = exact.squaredNorm();
  const double stored = square > 0 ? epsilon_ * exact.cwiseAbs2().norm() / square : 0;
  factor_ = std::max(caution(samples) * std::sqrt(factor_ / samples), stored);
}

double ExpectedRounding::largest_part(const Matrix& difference) const {
  const Matrix squares = in_rows(difference, squares_.cols()).cwiseAbs2();
  const auto largest = [&](const auto& distances, const auto& expected) {
    const double careful = caution(samples_, distances.size(), squares.size() / distances.size());
    double worst = 0;
    for (Eigen::Index i = 0; i < distances.size(); ++i)
      worst = std::max(worst, multiple(std::sqrt(distances(i)), careful * std::sqrt(expected(i))));
    return worst;
  };
  return std::max({largest(squares.reshaped(), squares_.reshaped()),
                   largest(squares.rowwise().sum(), squares_.rowwise().sum()),
                   largest(squares.colwise().sum(), squares_.colwise().sum())});
}

double ExpectedRounding::of_element(Eigen::Index i) const {
  return caution(samples_, squares_.size(), 1) * std::sqrt(squares_.reshaped<Eigen::RowMajor>()(i));
}

double ExpectedRounding::error(const Matrix& dumped, const Matrix& predicted, double scale) const {
  if (!dumped.allFinite() || !predicted.allFinite()) return std::numeric_limits<double>::infinity();
  const Matrix difference = dumped - predicted;
  if (difference.norm() == 0) return 0;
  double worst = std::max(difference.norm() / (scale * whole_), largest_part(difference) / scale);
  // A number that is stored, such as one over the ranks, may have been a factor of all of it.
  if (predicted.size() > 1 && predicted.squaredNorm() > 0)
    worst = std::max(worst, multiple(std::max(std::abs(common_part(difference, predicted)) - epsilon_, 0.0), factor_));
  return worst;
}

double ExpectedRounding::factor_shown(double limit) const { return epsilon_ + limit * factor_; }

double ExpectedRounding::row_shown(const Matrix& exact, double limit) const {
  const InRows rows = in_rows(exact, squares_.cols());
  const double careful = caution(samples_, rows.rows(), rows.cols());
  double worst = 0;
  for (Eigen::Index i = 0; i < rows.rows(); ++i) {
    const double length = rows.row(i).norm(), expected = std::sqrt(squares_.row(i).sum());
    if (length > 0) worst = std::max(worst, limit * careful * expected / length);
  }
  return worst;
}

}  // namespace weft::verify
