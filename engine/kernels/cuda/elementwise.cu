// SPDX-License-Identifier: Apache-2.0
// Elementwise verbs. They are bound by memory, so each thread processes several values in 16-byte accesses.
#include "weft/engine/kernels/cuda/cuda_backend.h"
#include "weft/engine/kernels/cuda/launch.cuh"
#include "weft/engine/kernels/scalar_ops.h"

namespace weft {
namespace cuda {
namespace {

// The formulas on stored values are computed in Compute<T> and rounded once.
template <class T> struct Constant {
  T value;
  __device__ T operator()() const { return value; }
};
template <class To> struct Cast {
  template <class From> __device__ To operator()(From x) const {
    return static_cast<To>(static_cast<Compute<To>>(static_cast<Compute<From>>(x)));
  }
};
template <class O, class T> struct Value {
  O op;
  __device__ T operator()(T x) const { return T(op.f(Compute<T>(x))); }
};
template <class O, class T> struct Slope {
  O op;
  __device__ T operator()(T s, T g) const { return T(op.df(Compute<T>(s)) * Compute<T>(g)); }
};
template <class O, class T> struct Curvature {
  O op;
  __device__ T operator()(T s, T g, T h) const { return T(op.ddf(Compute<T>(s)) * Compute<T>(g) * Compute<T>(h)); }
};
template <class O, class T> struct Pair {
  __device__ T operator()(T a, T b) const { return T(O{}(Compute<T>(a), Compute<T>(b))); }
};
template <class O, class T> struct Compare {
  __device__ uint8_t operator()(T a, T b) const { return O{}(Compute<T>(a), Compute<T>(b)); }
};
struct Select {
  template <class T> __device__ T operator()(uint8_t condition, T a, T b) const { return condition ? a : b; }
};
template <class T> struct Accumulate {
  Compute<T> scale;
  __device__ T operator()(T x, T y) const { return T(Compute<T>(y) + scale * Compute<T>(x)); }
};
template <class O, class T> struct Biased {
  O op;
  __device__ T operator()(T x, T bias) const { return T(op.f(Compute<T>(x) + Compute<T>(bias))); }
};

// y[i] = f(x[i], v[index of i along the axis]), with one division per pack.
template <int N, class F, class T>
__global__ void __launch_bounds__(block_threads)
    along_kernel(int64_t n, F f, const T* x, const T* v, Along along, T* y) {
  const int64_t stride = int64_t{gridDim.x} * block_threads * N;
  for (int64_t i = (int64_t{blockIdx.x} * block_threads + threadIdx.x) * N; i < n; i += stride) {
    Split slice = split(i, along.inner);
    int64_t place = split(slice.quotient, along.extent).remainder;
    Pack<T, N> pack = load<N>(x + i, n - i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      pack.at[k] = f(pack.at[k], v[place]);
      if (++slice.remainder < along.inner) continue;
      slice.remainder = 0;
      if (++place == along.extent) place = 0;
    }
    store(pack, y + i, n - i);
  }
}
template <class F, class T> void map_along(int64_t n, const F& f, const T* x, const T* v, Along along, T* y) {
  constexpr int N = pack_of<T>;
  launch(along_kernel<N, F, T>, ceil_divide(n, int64_t{block_threads} * N), n, f, x, v, along, y);
}

template <template <class, class> class Order, class... X>
void map_unary(Unary op, Scalars scalars, Tensor& y, const X&... x) {
  visit_floating(y.dtype(), [&]<class T>() {
    with(op, scalars,
         [&]<class O>(const O& o) { map(y.size(), Order<O, T>{o}, y.mutate<T>(), x.template data<T>()...); });
  });
}

// Integers have only the ops that are exact on them.
template <class O, class T>
constexpr bool has_op = std::is_floating_point_v<Compute<T>> || std::is_same_v<O, Add> || std::is_same_v<O, Subtract> ||
                        std::is_same_v<O, Multiply> || std::is_same_v<O, Minimum> || std::is_same_v<O, Maximum>;

template <class F> void visit_binary(Binary op, DType type, F&& run) {
  visit(type, [&]<class T>() {
    with(op, [&]<class O>(O) {
      if constexpr (has_op<O, T>)
        run.template operator()<T>(Pair<O, T>{});
      else
        fail({"binary kernel: not for ", text(type)});
    });
  });
}

// The derivatives of an op that saves nothing ignore this argument, so another tensor takes its place.
const Tensor& present(const Tensor& saved, const Tensor& otherwise) { return saved.defined() ? saved : otherwise; }

}  // namespace
}  // namespace cuda

void CudaBackend::fill(double value, Tensor& y) {
  visit(y.dtype(), [&]<class T>() {
    cuda::map(y.size(), cuda::Constant<T>{static_cast<T>(static_cast<Compute<T>>(value))}, y.mutate<T>());
  });
}
void CudaBackend::cast(const Tensor& x, Tensor& y) {
  visit(x.dtype(), [&]<class From>() {
    visit(y.dtype(), [&]<class To>() { cuda::map(y.size(), cuda::Cast<To>{}, y.mutate<To>(), x.data<From>()); });
  });
}

void CudaBackend::unary(Unary op, Scalars scalars, const Tensor& x, Tensor& y) {
  cuda::map_unary<cuda::Value>(op, scalars, y, x);
}
void CudaBackend::slope(Unary op, Scalars scalars, const Tensor& saved, const Tensor& g, Tensor& y) {
  cuda::map_unary<cuda::Slope>(op, scalars, y, cuda::present(saved, g), g);
}
void CudaBackend::curvature(Unary op, Scalars scalars, const Tensor& saved, const Tensor& g, const Tensor& h,
                            Tensor& y) {
  cuda::map_unary<cuda::Curvature>(op, scalars, y, cuda::present(saved, g), g, h);
}

void CudaBackend::binary(Binary op, const Tensor& a, const Tensor& b, Tensor& y) {
  cuda::visit_binary(op, y.dtype(),
                     [&]<class T>(auto f) { cuda::map(y.size(), f, y.mutate<T>(), a.data<T>(), b.data<T>()); });
}
void CudaBackend::binary_along(Binary op, const Tensor& a, const Tensor& v, Along along, Tensor& y) {
  cuda::visit_binary(op, y.dtype(), [&]<class T>(auto f) {
    cuda::map_along(y.size(), f, a.data<T>(), v.data<T>(), along, y.mutate<T>());
  });
}
void CudaBackend::compare(Comparison op, const Tensor& a, const Tensor& b, Tensor& y) {
  visit(a.dtype(), [&]<class T>() {
    with(op, [&]<class O>(O) {
      cuda::map(y.size(), cuda::Compare<O, T>{}, y.mutate<uint8_t>(), a.data<T>(), b.data<T>());
    });
  });
}
void CudaBackend::where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& y) {
  visit(y.dtype(), [&]<class T>() {
    cuda::map(y.size(), cuda::Select{}, y.mutate<T>(), condition.data<uint8_t>(), a.data<T>(), b.data<T>());
  });
}
void CudaBackend::accumulate(double scale, const Tensor& x, Tensor& y) {
  visit_floating(y.dtype(), [&]<class T>() {
    const cuda::Accumulate<T> add = {static_cast<Compute<T>>(scale)};
    cuda::map(y.size(), add, y.mutate<T>(), x.data<T>(), y.data<T>());
  });
}

// One pass over the result of cuBLAS, of what the product has not done (cublas_product.h).
void CudaBackend::finish(const Epilogue& epilogue, int64_t columns, Tensor& y) {
  const Activation& activation = epilogue.activation;
  if (!epilogue.bias) {
    if (!activation.identity()) unary(activation.op, activation.scalars, y, y);
    return;
  }
  visit_floating(y.dtype(), [&]<class T>() {
    with(activation.op, activation.scalars, [&]<class O>(const O& o) {
      const Along along(1, columns, 1);
      cuda::map_along(y.size(), cuda::Biased<O, T>{o}, y.data<T>(), epilogue.bias->data<T>(), along, y.mutate<T>());
    });
  });
}

}  // namespace weft
