// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/kernels/cpu/apply.h"

#include <algorithm>

#include "weft/engine/kernels/cpu/cpu_backend.h"
#include "weft/engine/kernels/cpu/widen.h"

namespace weft {
namespace cpu {
namespace {

// The loop of every elementwise verb. It is not inlined, so that bf16 shares the loops of float.
template <class F, class Y, class... X> [[gnu::noinline]] void loop(const F f, int64_t n, Y* y, const X*... x) {
  for (int64_t i = 0; i < n; ++i) y[i] = f(x[i]...);
}

// The values that a loop reads. Values converted from bf16 live until the end of the full expression.
struct Buffer {
  float values[values_in_l1];
  Buffer() {}
};
template <class T> const T* widened(const T* x, int64_t) { return x; }
const float* widened(const BFloat16* x, int64_t n, Buffer&& buffer = Buffer()) {
  convert<float>(n, x, buffer.values);
  return buffer.values;
}

// The loop for every type. bf16 is converted to float block by block.
template <class F, class Y, class... X> void map(F f, int64_t n, Y* y, const X*... x) {
  if constexpr (!(std::is_same_v<X, BFloat16> || ...)) {
    loop(f, n, y, x...);
  } else {
    Compute<Y> out[values_in_l1];
    for (int64_t i = 0; i < n; i += values_in_l1) {
      const int64_t count = std::min(values_in_l1, n - i);
      loop(f, count, out, widened(x + i, count)...);
      convert<Y>(count, out, y + i);
    }
  }
}

// A unary op and its two derivatives on one element.
template <class O> struct Value {
  O op;
  template <class T> T operator()(T x) const { return op.f(x); }
};
template <class O> struct Slope {
  O op;
  template <class T> T operator()(T s, T g) const { return op.df(s) * g; }
};
template <class O> struct Curvature {
  O op;
  template <class T> T operator()(T s, T g, T h) const { return op.ddf(s) * g * h; }
};
template <template <class> class Order, class... X>
void map_unary(Unary op, Scalars scalars, Tensor& y, const X&... x) {
  visit_floating(y.dtype(), [&]<class T>() {
    with(op, scalars, [&]<class O>(O o) { map(Order<O>{o}, y.size(), y.mutate<T>(), x.template data<T>()...); });
  });
}

// v is repeated over a block of values, so that every op and type needs only one loop.
template <class O, class T> void map_along(O op, const T* a, const T* v, Along along, T* y) {
  const auto [outer, extent, inner] = along;
  const int64_t row = extent * inner;
  Compute<T> pattern[values_in_l1];
  if (row <= values_in_l1 / 2) {  // several rows fill a block
    const int64_t rows = std::min(outer, values_in_l1 / std::max<int64_t>(row, 1));
    for (int64_t r = 0, i = 0; r < rows; ++r)
      for (int64_t e = 0; e < extent; ++e, i += inner) std::fill_n(pattern + i, inner, Compute<T>(v[e]));
    for (int64_t o = 0; o < outer; o += rows)
      map(op, std::min(rows, outer - o) * row, y + o * row, a + o * row, static_cast<const Compute<T>*>(pattern));
  } else if (inner == 1) {
    for (int64_t o = 0; o < outer; ++o) map(op, row, y + o * row, a + o * row, v);
  } else {
    for (int64_t i = 0; i < outer * row; i += inner) {
      std::fill_n(pattern, std::min(inner, values_in_l1), Compute<T>(v[i / inner % extent]));
      for (int64_t j = i; j < i + inner; j += values_in_l1)
        map(op, std::min(values_in_l1, i + inner - j), y + j, a + j, static_cast<const Compute<T>*>(pattern));
    }
  }
}

struct Select {
  template <class T> T operator()(uint8_t condition, T a, T b) const { return condition ? a : b; }
};
struct Accumulate {
  double scale;
  template <class T> T operator()(T x, T y) const { return y + T(scale) * x; }
};

// Integers have only the ops that are exact on them.
template <class O, class T>
constexpr bool has_op = std::is_floating_point_v<Compute<T>> || std::is_same_v<O, Add> || std::is_same_v<O, Subtract> ||
                        std::is_same_v<O, Multiply> || std::is_same_v<O, Minimum> || std::is_same_v<O, Maximum>;

template <class F> void visit_binary(Binary op, DType type, F&& run) {
  visit(type, [&]<class T>() {
    with(op, [&]<class O>(O o) {
      if constexpr (has_op<O, T>)
        run.template operator()<T>(o);
      else
        fail({"binary kernel: not for ", text(type)});
    });
  });
}

}  // namespace

template <class T> void apply(Unary op, Scalars scalars, int64_t n, const T* x, T* y) {
  with(op, scalars, [&]<class O>(O o) { loop(Value<O>{o}, n, y, x); });
}
template void apply(Unary, Scalars, int64_t, const float*, float*);
template void apply(Unary, Scalars, int64_t, const double*, double*);

}  // namespace cpu

void CpuBackend::fill(double value, Tensor& y) {
  visit(y.dtype(), [&]<class T>() { std::fill_n(y.mutate<T>(), y.size(), T(static_cast<Compute<T>>(value))); });
}
void CpuBackend::cast(const Tensor& x, Tensor& y) {
  visit(x.dtype(), [&]<class From>() {
    visit(y.dtype(), [&]<class To>() { cpu::convert<To>(x.size(), x.data<From>(), y.mutate<To>()); });
  });
}

void CpuBackend::unary(Unary op, Scalars scalars, const Tensor& x, Tensor& y) {
  cpu::map_unary<cpu::Value>(op, scalars, y, x);
}
void CpuBackend::slope(Unary op, Scalars scalars, const Tensor& saved, const Tensor& g, Tensor& y) {
  cpu::map_unary<cpu::Slope>(op, scalars, y, saved, g);
}
void CpuBackend::curvature(Unary op, Scalars scalars, const Tensor& saved, const Tensor& g, const Tensor& h,
                           Tensor& y) {
  cpu::map_unary<cpu::Curvature>(op, scalars, y, saved, g, h);
}

void CpuBackend::binary(Binary op, const Tensor& a, const Tensor& b, Tensor& y) {
  cpu::visit_binary(op, y.dtype(),
                    [&]<class T>(auto o) { cpu::map(o, y.size(), y.mutate<T>(), a.data<T>(), b.data<T>()); });
}
void CpuBackend::add_all(std::span<Addition> sums) {
  for (Addition& sum : sums) binary(Binary::Add, sum.a, sum.b, sum.to);
}
void CpuBackend::binary_along(Binary op, const Tensor& a, const Tensor& v, Along along, Tensor& y) {
  cpu::visit_binary(op, y.dtype(),
                    [&]<class T>(auto o) { cpu::map_along(o, a.data<T>(), v.data<T>(), along, y.mutate<T>()); });
}
void CpuBackend::compare(Comparison op, const Tensor& a, const Tensor& b, Tensor& y) {
  visit(a.dtype(), [&]<class T>() {
    with(op, [&](auto o) { cpu::map(o, y.size(), y.mutate<uint8_t>(), a.data<T>(), b.data<T>()); });
  });
}
void CpuBackend::where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& y) {
  visit(y.dtype(), [&]<class T>() {
    using Bits = std::conditional_t<std::is_same_v<T, BFloat16>, uint16_t, T>;  // a class would not vectorise
    cpu::loop(cpu::Select{}, y.size(), y.mutate<Bits>(), condition.data<uint8_t>(), a.data<Bits>(), b.data<Bits>());
  });
}
void CpuBackend::accumulate(double scale, const Tensor& x, Tensor& y) {
  visit_floating(y.dtype(), [&]<class T>() {
    T* sum = y.mutate<T>();
    cpu::map(cpu::Accumulate{scale}, y.size(), sum, x.data<T>(), static_cast<const T*>(sum));
  });
}

}  // namespace weft
