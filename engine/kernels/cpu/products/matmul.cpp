// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "weft/engine/kernels/cpu/apply.h"
#include "weft/engine/kernels/cpu/cpu_backend.h"
#include "weft/engine/kernels/cpu/products/convolve.h"
#include "weft/engine/kernels/cpu/products/gemm.h"
#include "weft/engine/kernels/cpu/widen.h"

namespace weft {
namespace {

// Converts an Epilogue to that of gemm. The activation is applied to each piece of a row while it is in L1.
template <class T> class Finishing {
 public:
  explicit Finishing(const Epilogue& epilogue) : activation_(epilogue.activation) {
    if (epilogue.bias) bias_.emplace(*epilogue.bias);
  }
  cpu::Epilogue<Compute<T>> operator()() {
    cpu::Epilogue<Compute<T>> result;
    if (bias_) result.bias = *bias_;
    if (!activation_.identity()) result.finish = activate, result.context = &activation_;
    return result;
  }

 private:
  static void activate(void* context, Compute<T>* values, int64_t, int64_t, int64_t count) {
    const auto& [op, scalars] = *static_cast<const Activation*>(context);
    cpu::apply<Compute<T>>(op, scalars, count, values, values);
  }
  Activation activation_;
  std::optional<cpu::Input<T>> bias_;
};

}  // namespace

void CpuBackend::matmul(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Epilogue& epilogue,
                        Tensor& y) {
  int64_t m = y.shape()[-2];
  const int64_t n = y.shape()[-1], k = a.shape()[transpose_a ? -2 : -1];
  int64_t batch = y.shape().product(0, y.shape().rank() - 2);
  const bool a_shared = a.shape().rank() == 2, b_shared = b.shape().rank() == 2;
  if (b_shared && !a_shared && !transpose_a) {  // one tall matrix
    m *= batch;
    batch = 1;
  }
  visit_floating(y.dtype(), [&]<class T>() {
    using C = Compute<T>;
    const cpu::Input<T> a_values(a), b_values(b);
    const cpu::Output<T> y_values(y);
    Finishing<T> finishing(epilogue);
    for (int64_t i = 0; i < batch; ++i)
      cpu::gemm<C>(transpose_a, transpose_b, m, n, k, a_values + (a_shared ? 0 : i * m * k), transpose_a ? m : k,
                   b_values + (b_shared ? 0 : i * k * n), transpose_b ? k : n, y_values + i * m * n, n, finishing());
  });
}

void CpuBackend::convolve(const Convolution& c, const Tensor& x, const Tensor& w, const Epilogue& epilogue, Tensor& y) {
  visit_floating(y.dtype(), [&]<class T>() {
    Finishing<T> finishing(epilogue);
    cpu::forward<Compute<T>>(c, cpu::Input<T>(x), cpu::Input<T>(w), cpu::Output<T>(y), finishing());
  });
}

void CpuBackend::convolve_input_gradient(const Convolution& c, const Tensor& g, const Tensor& w, Tensor& dx) {
  visit_floating(dx.dtype(), [&]<class T>() {
    cpu::input_gradient<Compute<T>>(c, cpu::Input<T>(g), cpu::Input<T>(w), cpu::Output<T>(dx));
  });
}

void CpuBackend::convolve_weight_gradient(const Convolution& c, const Tensor& x, const Tensor& g, Tensor& dw) {
  visit_floating(dw.dtype(), [&]<class T>() {
    cpu::weight_gradient<Compute<T>>(c, cpu::Input<T>(x), cpu::Input<T>(g), cpu::Output<T>(dw));
  });
}

}  // namespace weft
