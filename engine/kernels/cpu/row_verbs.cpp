// SPDX-License-Identifier: Apache-2.0
// The verbs on rows, which call the kernels of rows.h with the values of tensors.
#include "weft/engine/kernels/cpu/cpu_backend.h"
#include "weft/engine/kernels/cpu/rows.h"
#include "weft/engine/kernels/cpu/widen.h"

namespace weft {
namespace {

struct Rows {
  int64_t count, n;
  explicit Rows(const Tensor& x) : count(x.shape().product(0, x.shape().rank() - 1)), n(x.shape()[-1]) {}
};

}  // namespace

void CpuBackend::normalize_rows(Normalizer kind, const Tensor& x, Tensor& y) {
  const Rows rows(x);
  visit_floating(x.dtype(), [&]<class T>() {
    const auto kernel = kind == Normalizer::softmax ? cpu::softmax<Compute<T>> : cpu::log_softmax<Compute<T>>;
    kernel(rows.count, rows.n, cpu::Input<T>(x), cpu::Output<T>(y));
  });
}

void CpuBackend::normalize_rows_pullback(Normalizer kind, const Tensor& y, const Tensor& g, Tensor& dx) {
  const Rows rows(y);
  visit_floating(y.dtype(), [&]<class T>() {
    using C = Compute<T>;
    const auto kernel = kind == Normalizer::softmax ? cpu::softmax_pullback<C> : cpu::log_softmax_pullback<C>;
    kernel(rows.count, rows.n, cpu::Input<T>(y), cpu::Input<T>(g), cpu::Output<T>(dx));
  });
}

void CpuBackend::log_sum_exp_rows(const Tensor& x, Tensor& y) {
  const Rows rows(x);
  visit_floating(x.dtype(), [&]<class T>() {
    cpu::logsumexp<Compute<T>>(rows.count, rows.n, cpu::Input<T>(x), cpu::Output<T>(y));
  });
}

// Sums are in the order of `reduce`.
void CpuBackend::unit_rows(double epsilon, const Tensor& x, Tensor& y, Tensor& lengths) {
  const Rows rows(x);
  visit_floating(x.dtype(), [&]<class T>() {
    using C = Compute<T>;
    const cpu::Input<T> from(x);
    const cpu::Output<T> to(y);
    Tensor squares(x.shape(), lengths.dtype());
    C* const square = squares.mutate<C>();
    for (int64_t i = 0; i < x.size(); ++i) square[i] = from[i] * from[i];
    reduce(Reduction::sum, squares, Along(rows.count, rows.n, 1), lengths);
    C* const length = lengths.mutate<C>();
    const C least = static_cast<C>(epsilon);
    for (int64_t r = 0; r < rows.count; ++r) {
      length[r] = maths::sqrt(length[r]);
      const C divisor = length[r] < least ? least : length[r];
      for (int64_t i = r * rows.n; i < (r + 1) * rows.n; ++i) to[i] = from[i] / divisor;
    }
  });
}

void CpuBackend::unit_rows_pullback(double epsilon, const Tensor& x, const Tensor& lengths, const Tensor& g,
                                    Tensor& dx) {
  const Rows rows(x);
  visit_floating(x.dtype(), [&]<class T>() {
    using C = Compute<T>;
    const cpu::Input<T> from(x), slope(g);
    const cpu::Output<T> to(dx);
    const C* const length = lengths.data<C>();
    const C least = static_cast<C>(epsilon);
    const auto divisor = [&](int64_t r) { return length[r] < least ? least : length[r]; };
    Tensor products(x.shape(), lengths.dtype()), sums = Tensor::like(lengths);
    C* const product = products.mutate<C>();
    for (int64_t r = 0; r < rows.count; ++r)
      for (int64_t i = r * rows.n; i < (r + 1) * rows.n; ++i) product[i] = slope[i] * (from[i] / divisor(r));
    reduce(Reduction::sum, products, Along(rows.count, rows.n, 1), sums);
    for (int64_t r = 0; r < rows.count; ++r) {
      const C free = length[r] < least ? C(0) : C(1);  // whether the divisor is the length, and no constant
      const C along = free * (0 - sums.data<C>()[r] / divisor(r)) / (length[r] == 0 ? 1 : length[r]);
      for (int64_t i = r * rows.n; i < (r + 1) * rows.n; ++i) to[i] = slope[i] / divisor(r) + from[i] * along;
    }
  });
}

void CpuBackend::standardize_rows(double epsilon, const Tensor& x, Tensor& y, Tensor& rstd) {
  const Rows rows(x);
  visit_floating(x.dtype(), [&]<class T>() {
    using C = Compute<T>;
    cpu::standardize<C>(rows.count, rows.n, static_cast<C>(epsilon), cpu::Input<T>(x), cpu::Output<T>(y),
                        cpu::Output<T>(rstd));
  });
}

void CpuBackend::standardize_rows_pullback(const Tensor& y, const Tensor& rstd, const Tensor& g, Tensor& dx) {
  const Rows rows(y);
  visit_floating(y.dtype(), [&]<class T>() {
    cpu::standardize_pullback<Compute<T>>(rows.count, rows.n, cpu::Input<T>(y), cpu::Input<T>(rstd), cpu::Input<T>(g),
                                          cpu::Output<T>(dx));
  });
}

void CpuBackend::layer_norm_rows(double epsilon, bool relu, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                                 Tensor& y, Tensor& moments) {
  const Rows rows(x);
  visit_floating(x.dtype(), [&]<class T>() {
    using C = Compute<T>;
    cpu::layer_norm<C>(rows.count, rows.n, static_cast<C>(epsilon), relu, cpu::Input<T>(x), cpu::Input<T>(gamma),
                       cpu::Input<T>(beta), cpu::Output<T>(y), moments.mutate<cpu::Moments<C>>());
  });
}

void CpuBackend::layer_norm_rows_pullback(const NormedRows& saved, const Tensor& g, Tensor& dx, Tensor& dgamma,
                                          Tensor& dbeta) {
  const Rows rows(g);
  visit_floating(g.dtype(), [&]<class T>() {
    using C = Compute<T>;
    const cpu::Input<T> y(saved.rectified);
    const C* rectified = saved.rectified.defined() ? static_cast<const C*>(y) : nullptr;
    cpu::layer_norm_pullback<C>(rows.count, rows.n, cpu::Input<T>(saved.x), cpu::Input<T>(saved.gamma), rectified,
                                saved.moments.data<cpu::Moments<C>>(), cpu::Input<T>(g), cpu::Output<T>(dx),
                                cpu::Output<T>(dgamma), cpu::Output<T>(dbeta));
  });
}

void CpuBackend::cross_entropy_rows(const Tensor& x, const Indices& targets, Tensor& losses) {
  const Rows rows(x);
  visit_floating(x.dtype(), [&]<class T>() {
    const cpu::Input<T> logits(x);
    const cpu::Output<T> loss(losses);
    cpu::logsumexp<Compute<T>>(rows.count, rows.n, logits, loss);
    const int64_t* target = targets.on_host();
    for (int64_t r = 0; r < rows.count; ++r) loss[r] -= logits[r * rows.n + target[r]];
  });
}

void CpuBackend::cross_entropy_rows_pullback(const Tensor& x, const Indices& targets, const Tensor& g, Tensor& dx) {
  const Rows rows(x);
  visit_floating(x.dtype(), [&]<class T>() {
    const cpu::Input<T> slope(g);
    const cpu::Output<T> to(dx);
    cpu::softmax<Compute<T>>(rows.count, rows.n, cpu::Input<T>(x), to);
    const int64_t* target = targets.on_host();
    for (int64_t r = 0; r < rows.count; ++r) {
      to[r * rows.n + target[r]] -= 1;
      for (int64_t j = 0; j < rows.n; ++j) to[r * rows.n + j] *= slope[r];
    }
  });
}

}  // namespace weft
