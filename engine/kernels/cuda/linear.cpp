// SPDX-License-Identifier: Apache-2.0
// Products by cuBLAS.
#include "weft/engine/kernels/cuda/cublas_product.h"
#include "weft/engine/kernels/cuda/cuda_backend.h"
#include "weft/engine/kernels/cuda/products.h"

namespace weft {
namespace cuda {

void products_of_rows(const Tensor& a, const Tensor& b, const Tensor& factors, bool tf32, Tensor& y) {
  if (a.size() == 0) return y.copy_from(Tensor::zeros(y.shape(), y.dtype(), Device::cuda));
  visit_floating(a.dtype(), [&]<class T>() {
    using C = Compute<T>;
    const Product product{y.shape()[0], y.shape()[1], a.shape()[1], 1, tf32};
    product.run_scaled(Operand<T>{a.data<T>()}, Operand<T>{b.data<T>(), true}, factors.data<C>(), y.mutate<C>());
  });
}

void products_of_rows(const Half* a, const Half* b, int64_t width, const Tensor& factors, Tensor& y) {
  const Product product{y.shape()[0], y.shape()[1], width};
  product.run_scaled(Operand<Half>{a}, Operand<Half>{b, true}, factors.data<float>(), y.mutate<float>());
}

void product_of_columns(const Tensor& a, bool transpose_a, const Tensor& b, int64_t columns, bool accumulate, bool tf32,
                        Tensor& y) {
  if (y.size() == 0) return;
  visit_floating(a.dtype(), [&]<class T>() {
    const Product product{y.shape()[0], columns, b.shape()[0], 1, tf32, accumulate, y.shape()[1]};
    product.run(Operand<T>{a.data<T>(), transpose_a}, Operand<T>{b.data<T>(), false, 0, b.shape()[1]},
                y.mutate<Compute<T>>());
  });
}

}  // namespace cuda

void CudaBackend::matmul(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Epilogue& epilogue,
                         Tensor& y) {
  if (y.size() == 0) return;
  const int64_t n = y.shape()[-1], k = a.shape()[transpose_a ? -2 : -1];
  int64_t m = y.shape()[-2], batch = y.shape().product(0, y.shape().rank() - 2);
  const bool a_shared = a.shape().rank() == 2, b_shared = b.shape().rank() == 2;
  if (b_shared && !a_shared && !transpose_a) {  // one tall matrix
    m *= batch;
    batch = 1;
  }
  if (k == 0) {
    fill(0, y);
    return finish(epilogue, n, y);
  }
  visit_floating(y.dtype(), [&]<class T>() {
    const cuda::Operand<T> left = {a.data<T>(), transpose_a, a_shared ? 0 : m * k};
    const cuda::Operand<T> right = {b.data<T>(), transpose_b, b_shared ? 0 : k * n};
    finish(cuda::Product{m, n, k, batch, tf32_}.run(left, right, epilogue, y.mutate<T>()), n, y);
  });
}

}  // namespace weft
