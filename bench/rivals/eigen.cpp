// SPDX-License-Identifier: Apache-2.0
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>

#include "bench/rivals/eigen.h"

namespace weft::bench {
namespace {
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Input = Eigen::Map<const Matrix>;
using Array = Eigen::Map<const Eigen::ArrayXf>;
}  // namespace

void eigen_gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const float* a, const float* b,
                float* c) {
  Eigen::Map<Matrix> result(c, m, n);
  if (transpose_a)
    result.noalias() = Input(a, k, m).transpose() * Input(b, k, n);
  else if (transpose_b)
    result.noalias() = Input(a, m, k) * Input(b, n, k).transpose();
  else
    result.noalias() = Input(a, m, k) * Input(b, k, n);
}

void eigen_exp(int64_t n, const float* x, float* y) { Eigen::Map<Eigen::ArrayXf>(y, n) = Array(x, n).exp(); }
void eigen_tanh(int64_t n, const float* x, float* y) { Eigen::Map<Eigen::ArrayXf>(y, n) = Array(x, n).tanh(); }

}  // namespace weft::bench
