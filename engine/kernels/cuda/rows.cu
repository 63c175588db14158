// SPDX-License-Identifier: Apache-2.0
// Softmax, log-softmax, rows of length 1, log-sum-exp and cross entropy of rows.
#include <limits>

#include "weft/engine/kernels/cuda/checked_indices.cuh"
#include "weft/engine/kernels/cuda/cuda_backend.h"
#include "weft/engine/kernels/cuda/held_row.cuh"
#include "weft/engine/kernels/cuda/rows.cuh"
#include "weft/engine/kernels/scalar_ops.h"

namespace weft {
namespace cuda {
namespace {

template <class Team, class T> __device__ Compute<T> greatest(Team team, const T* row, int64_t n) {
  Compute<T> top = -std::numeric_limits<Compute<T>>::infinity();
  for_each_value(
      team, n, [&](int64_t, T value) { top = Maximum{}(top, Compute<T>(value)); }, row);
  return team.reduce(top, Maximum{});
}
template <class Team, class T> __device__ Compute<T> sum_exp(Team team, const T* row, int64_t n, Compute<T> shift) {
  return sum_over(
      team, n, [&](Compute<T> value) { return maths::exp(value - shift); }, row);
}

// The same for a row that a warp holds, unless it is in f64, for which registers do not suffice. Its values become
// their exponentials.
using Warp = Team<warp_threads>;
template <class Team, class T> constexpr bool holds_rows = Team::size == warp_threads && sizeof(Compute<T>) == 4;
template <class T> __device__ Compute<T> greatest(Warp warp, HeldRow<T>& row) {
  Compute<T> top = -std::numeric_limits<Compute<T>>::infinity();
  row.for_each([&](Compute<T> value) { top = Maximum{}(top, value); });
  return warp.reduce(top, Maximum{});
}
template <class T> __device__ Compute<T> sum_exp(Warp warp, HeldRow<T>& row, Compute<T> shift) {
  Compute<T> sum = 0;
  row.for_each([&](Compute<T>& value) { sum += value = maths::exp(value - shift); });
  return warp.reduce(sum, Add{});
}

// log(sum of exp(row)) as shift + rest. A maximum that is not finite is not used as the shift, because inf - inf is
// NaN.
template <class C> struct LogSumExp { C shift, rest; };
template <class C> __device__ C finite_shift(C top) {
  return maths::abs(top) < std::numeric_limits<C>::infinity() ? top : C(0);
}
template <class Team, class T> __device__ LogSumExp<Compute<T>> log_sum_exp(Team team, const T* row, int64_t n) {
  if constexpr (holds_rows<Team, T>) {
    HeldRow<T> held(row, n);
    const auto shift = finite_shift(greatest(team, held));
    return {shift, maths::log(sum_exp(team, held, shift))};
  } else {
    const auto shift = finite_shift(greatest(team, row, n));
    return {shift, maths::log(sum_exp(team, row, n, shift))};
  }
}

template <Normalizer kind, class T> struct Normalize {
  int64_t n;
  const T* x;
  T* y;
  template <class Team> __device__ void operator()(Team team, int64_t row) const {
    using C = Compute<T>;
    if constexpr (holds_rows<Team, T>) return hold(team, row);
    const C top = greatest(team, x + row * n, n), sum = sum_exp(team, x + row * n, n, top), log_sum = maths::log(sum);
    const auto finish = [&](T value) {
      if constexpr (kind == Normalizer::softmax)
        return T(maths::exp(C(value) - top) / sum);
      else
        return T(C(value) - top - log_sum);
    };
    map_row(team, n, finish, y + row * n, x + row * n);
  }

 private:
  __device__ void hold(Warp warp, int64_t row) const {
    using C = Compute<T>;
    HeldRow<T> held(x + row * n, n);
    const C top = greatest(warp, held);
    if constexpr (kind == Normalizer::softmax) {
      const C sum = sum_exp(warp, held, top);
      held.for_each([&](C& value) { value /= sum; });
    } else {
      C sum = 0;
      held.for_each([&](C value) { sum += maths::exp(value - top); });
      const C log_sum = maths::log(warp.reduce(sum, Add{}));
      held.for_each([&](C& value) { value = value - top - log_sum; });
    }
    held.store(y + row * n);
  }
};

template <Normalizer kind, class T> struct NormalizePullback {
  int64_t n;
  const T *y, *g;
  T* dx;
  template <class Team> __device__ void operator()(Team team, int64_t row) const {
    using C = Compute<T>;
    if constexpr (holds_rows<Team, T>) return hold(team, row);
    const T *const values = y + row * n, *const slopes = g + row * n;
    if constexpr (kind == Normalizer::softmax) {
      const C sum = sum_over(team, n, Multiply{}, slopes, values);
      const auto finish = [&](T value, T slope) { return T(C(value) * (C(slope) - sum)); };
      map_row(team, n, finish, dx + row * n, values, slopes);
    } else {
      const C sum = sum_over(team, n, Constant{}, slopes);
      const auto finish = [&](T value, T slope) { return T(C(slope) - maths::exp(C(value)) * sum); };
      map_row(team, n, finish, dx + row * n, values, slopes);
    }
  }

 private:
  __device__ void hold(Warp warp, int64_t row) const {
    using C = Compute<T>;
    HeldRow<T> values(y + row * n, n), slopes(g + row * n, n);
    constexpr bool softmax = kind == Normalizer::softmax;
    C sum = 0;
    slopes.for_each([&](C slope, C value) { sum += softmax ? slope * value : slope; }, values);
    sum = warp.reduce(sum, Add{});
    const auto finish = [&](C& slope, C value) {
      slope = softmax ? value * (slope - sum) : slope - maths::exp(value) * sum;
    };
    slopes.for_each(finish, values);
    slopes.store(dx + row * n);
  }
};

template <class T> struct UnitRows {
  int64_t n;
  Compute<T> epsilon;
  const T* x;
  T* y;
  Compute<T>* lengths;
  template <class Team> __device__ void operator()(Team team, int64_t row) const {
    using C = Compute<T>;
    const T* const values = x + row * n;
    const C length = maths::sqrt(sum_over(team, n, Multiply{}, values, values));
    const C divisor = length < epsilon ? epsilon : length;
    const auto finish = [&](T value) { return T(C(value) / divisor); };
    map_row(team, n, finish, y + row * n, values);
    if (team.lane() == 0) lengths[row] = length;
  }
};
template <class T> struct UnitRowsPullback {
  int64_t n;
  Compute<T> epsilon;
  const T* x;
  const Compute<T>* lengths;
  const T* g;
  T* dx;
  template <class Team> __device__ void operator()(Team team, int64_t row) const {
    using C = Compute<T>;
    const T *const values = x + row * n, *const slopes = g + row * n;
    const C length = lengths[row], divisor = length < epsilon ? epsilon : length;
    const C free = length < epsilon ? C(0) : C(1);  // whether the divisor is the length, and no constant
    const auto product = [&](C slope, C value) { return slope * (value / divisor); };
    const C along = free * (0 - sum_over(team, n, product, slopes, values) / divisor) / (length == 0 ? C(1) : length);
    const auto finish = [&](T slope, T value) { return T(C(slope) / divisor + C(value) * along); };
    map_row(team, n, finish, dx + row * n, slopes, values);
  }
};

template <class T, class Y> struct LogSumExpRows {
  int64_t n;
  const T* x;
  Y* y;
  template <class Team> __device__ void operator()(Team team, int64_t row) const {
    const auto total = log_sum_exp(team, x + row * n, n);
    if (team.lane() == 0) y[row] = Y(Compute<Y>(total.shift) + Compute<Y>(total.rest));
  }
};

template <class T> struct CrossEntropy {
  int64_t n;
  const T* x;
  CheckedIndices targets;
  T* losses;
  template <class Team> __device__ void operator()(Team team, int64_t row) const {
    const auto total = log_sum_exp(team, x + row * n, n);
    if (team.lane() != 0) return;
    const int64_t target = targets[row];
    if (target >= 0) losses[row] = T(total.rest + (total.shift - Compute<T>(x[row * n + target])));
  }
};

template <class T> struct CrossEntropyPullback {
  int64_t n;
  const T* x;
  CheckedIndices targets;
  const T* g;
  T* dx;
  template <class Team> __device__ void operator()(Team team, int64_t row) const {
    using C = Compute<T>;
    const T* const values = x + row * n;
    const C slope = C(g[row]);
    C top, sum;
    if constexpr (holds_rows<Team, T>) {
      HeldRow<T> held(values, n);
      top = greatest(team, held);
      sum = sum_exp(team, held, top);
      held.for_each([&](C& value) { value = slope * (value / sum); });
      held.store(dx + row * n);
    } else {
      top = greatest(team, values, n);
      sum = sum_exp(team, values, n, top);
      const auto finish = [&](T value) { return T(slope * (maths::exp(C(value) - top) / sum)); };
      map_row(team, n, finish, dx + row * n, values);
    }
    const int64_t target = targets[row];
    const auto share = [&](T value) { return maths::exp(C(value) - top) / sum; };
    if (target >= 0 && writes<T, T>(team, target)) dx[row * n + target] = T(slope * (share(values[target]) - C(1)));
  }
};

}  // namespace
}  // namespace cuda

using cuda::for_rows_of;

void CudaBackend::normalize_rows(Normalizer kind, const Tensor& x, Tensor& y) {
  visit_floating(x.dtype(), [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.mutate<T>();
    using enum Normalizer;
    if (kind == softmax)
      for_rows_of(x, [&](int64_t n) { return cuda::Normalize<softmax, T>{n, from, to}; });
    else
      for_rows_of(x, [&](int64_t n) { return cuda::Normalize<log_softmax, T>{n, from, to}; });
  });
}
void CudaBackend::normalize_rows_pullback(Normalizer kind, const Tensor& y, const Tensor& g, Tensor& dx) {
  visit_floating(y.dtype(), [&]<class T>() {
    const T *out = y.data<T>(), *slopes = g.data<T>();
    T* to = dx.mutate<T>();
    using enum Normalizer;
    using cuda::NormalizePullback;
    if (kind == softmax)
      for_rows_of(y, [&](int64_t n) { return NormalizePullback<softmax, T>{n, out, slopes, to}; });
    else
      for_rows_of(y, [&](int64_t n) { return NormalizePullback<log_softmax, T>{n, out, slopes, to}; });
  });
}
void CudaBackend::unit_rows(double epsilon, const Tensor& x, Tensor& y, Tensor& lengths) {
  visit_floating(x.dtype(), [&]<class T>() {
    using C = Compute<T>;
    for_rows_of(x, [&](int64_t n) {
      return cuda::UnitRows<T>{n, C(epsilon), x.data<T>(), y.mutate<T>(), lengths.mutate<C>()};
    });
  });
}
void CudaBackend::unit_rows_pullback(double epsilon, const Tensor& x, const Tensor& lengths, const Tensor& g,
                                     Tensor& dx) {
  visit_floating(x.dtype(), [&]<class T>() {
    using C = Compute<T>;
    for_rows_of(x, [&](int64_t n) {
      return cuda::UnitRowsPullback<T>{n, C(epsilon), x.data<T>(), lengths.data<C>(), g.data<T>(), dx.mutate<T>()};
    });
  });
}
void CudaBackend::log_sum_exp_rows(const Tensor& x, Tensor& y) {
  visit_floating(x.dtype(), [&]<class T>() {
    const auto rows = [&]<class Y>() {
      for_rows_of(x, [&](int64_t n) { return cuda::LogSumExpRows<T, Y>{n, x.data<T>(), y.mutate<Y>()}; });
    };
    y.dtype() == x.dtype() ? rows.template operator()<T>() : rows.template operator()<double>();
  });
}
void CudaBackend::cross_entropy_rows(const Tensor& x, const Indices& targets, Tensor& losses) {
  visit_floating(x.dtype(), [&]<class T>() {
    for_rows_of(x, [&](int64_t n) {
      return cuda::CrossEntropy<T>{n, x.data<T>(), cuda::CheckedIndices(targets), losses.mutate<T>()};
    });
  });
}
void CudaBackend::cross_entropy_rows_pullback(const Tensor& x, const Indices& targets, const Tensor& g, Tensor& dx) {
  visit_floating(x.dtype(), [&]<class T>() {
    for_rows_of(x, [&](int64_t n) {
      return cuda::CrossEntropyPullback<T>{n, x.data<T>(), cuda::CheckedIndices(targets), g.data<T>(), dx.mutate<T>()};
    });
  });
}

}  // namespace weft
