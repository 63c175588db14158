// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/evaluation/feature_statistics.h"

#include <Eigen/Eigenvalues>
#include <cmath>

#include "weft/engine/maths/maths.h"

namespace weft {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Matrix matrix_of(const Tensor& rows) {
  const Tensor values = rows.to(Device::cpu).to(DType::f64);
  return Eigen::Map<const Matrix>(values.data<double>(), values.shape()[0], values.shape()[1]);
}

Matrix directions(Matrix rows) {
  for (auto row : rows.rowwise()) row /= std::max(row.norm(), 1e-12);
  return rows;
}

// Of the symmetric matrix, in ascending order, with the singular values of `rows` as roots.
Eigen::SelfAdjointEigenSolver<Matrix> squares_of_singular_values(const Matrix& rows, int what) {
  return Eigen::SelfAdjointEigenSolver<Matrix>(rows.transpose() * rows, what);
}

double rank_of(const Matrix& rows) {
  const Eigen::ArrayXd values =
      squares_of_singular_values(rows, Eigen::EigenvaluesOnly).eigenvalues().array().max(0).sqrt();
  const Eigen::ArrayXd shares = values / std::max(values.sum(), 1e-300) + 1e-12;  // no share is zero, for the logarithm
  return maths::exp(-(shares * shares.log()).sum());
}

}  // namespace

FeatureStatistics statistics_of(const Tensor& rows) {
  const Matrix features = matrix_of(rows);
  const double together = directions(features).colwise().mean().norm();
  return {.rank = rank_of(features),
          .norm = features.rowwise().norm().mean(),
          .spread = std::sqrt(std::max(0.0, 1 - together * together))};
}

Tensor in_a_plane(const Tensor& rows) {
  Matrix from_mean = directions(matrix_of(rows));
  from_mean.rowwise() -= from_mean.colwise().mean().eval();
  const Matrix axes = squares_of_singular_values(from_mean, Eigen::ComputeEigenvectors).eigenvectors().rightCols(2);
  const Matrix places = from_mean * axes;
  const std::vector<double> values(places.data(), places.data() + places.size());
  return Tensor::from({places.rows(), 2}, values, DType::f64);
}

}  // namespace weft
