// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/evaluation/feature_statistics.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>

#include "weft/engine/maths/maths.h"

namespace weft {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// Every n-th row, so that there are not more than `most`.
Matrix matrix_of(const Tensor& rows, int64_t most) {
  const Tensor values = rows.to(Device::cpu).to(DType::f64);
  const int64_t count = values.shape()[0], every = std::max<int64_t>(1, (count + most - 1) / most);
  const Eigen::Map<const Matrix> all(values.data<double>(), count, values.shape()[1]);
  Matrix some((count + every - 1) / every, all.cols());
  for (int64_t i = 0; i < some.rows(); ++i) some.row(i) = all.row(i * every);
  return some;
}

Matrix directions(Matrix rows) {
  for (auto row : rows.rowwise()) row /= std::max(row.norm(), 1e-12);
  return rows;
}

// The squares of all singular values that are not zero, in ascending order, as eigenvalues of the smaller product.
Eigen::ArrayXd squares_of_singular_values(const Matrix& rows) {
  const Matrix product = rows.rows() < rows.cols() ? Matrix(rows * rows.transpose()) : Matrix(rows.transpose() * rows);
  return Eigen::SelfAdjointEigenSolver<Matrix>(product, Eigen::EigenvaluesOnly).eigenvalues().array();
}

double rank_of(const Matrix& rows) {
  const Eigen::ArrayXd values = squares_of_singular_values(rows).max(0).sqrt();
  const Eigen::ArrayXd shares = values / std::max(values.sum(), 1e-300) + 1e-12;  // no share is zero, for the logarithm
  return maths::exp(-(shares * shares.log()).sum());
}

}  // namespace

FeatureStatistics statistics_of(const Tensor& rows) {
  const Matrix features = matrix_of(rows, 256);
  const double together = directions(features).colwise().mean().norm();
  return {.rank = rank_of(features),
          .norm = features.rowwise().norm().mean(),
          .spread = std::sqrt(std::max(0.0, 1 - together * together))};
}

// The eigenvectors of the rows' products, times the singular values, are the places along the principal axes.
Tensor in_a_plane(const Tensor& rows) {
  Matrix from_mean = directions(matrix_of(rows, rows.shape()[0]));
  from_mean.rowwise() -= from_mean.colwise().mean().eval();
  const Eigen::SelfAdjointEigenSolver<Matrix> found(from_mean * from_mean.transpose());
  const int64_t axes = std::min<int64_t>(2, from_mean.rows());
  Matrix places = Matrix::Zero(from_mean.rows(), 2);
  places.leftCols(axes) =
      found.eigenvectors().rightCols(axes) * found.eigenvalues().tail(axes).cwiseMax(0).cwiseSqrt().asDiagonal();
  const std::vector<double> values(places.data(), places.data() + places.size());
  return Tensor::from({places.rows(), 2}, values, DType::f64);
}

}  // namespace weft
