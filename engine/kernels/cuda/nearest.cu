// SPDX-License-Identifier: Apache-2.0
// The nearest code of every row. cuBLAS computes products for some rows at a time. Then a warp or a block per row finds
// the best score, and among the codes that may be as near the nearest in f64.
#include "weft/engine/kernels/nearest_code.h"

#include "weft/engine/kernels/cuda/cuda_backend.h"
#include "weft/engine/kernels/cuda/launch.cuh"

namespace weft {
namespace cuda {
namespace {

constexpr int64_t products_at_once = int64_t{1} << 25;  // 128 MiB of f32; at least the products of one row

struct Sum {
  template <class T> __device__ T operator()(T a, T b) const { return a + b; }
};
struct Larger {  // NaN only if both are
  template <class T> __device__ T operator()(T a, T b) const { return !(a >= b) && b == b ? b : a; }
};

// norms[j] = |x_j|.
template <class T> struct Norms {
  const T* x;
  int64_t width;
  double* norms;
  template <class Team> __device__ void operator()(Team team, int64_t row) const {
    double sum = 0;
    for_each_value(
        team, width, [&](int64_t, T v) { sum += double(v) * double(v); }, x + row * width);
    sum = team.reduce(sum, Sum{});
    if (team.lane() == 0) norms[row] = maths::sqrt(sum);
  }
};

// A code and its distance. The type is trivial, because it is in shared memory.
struct Near {
  double distance;
  int64_t index;
};
struct Nearer {  // the first of equally near ones
  __device__ Near operator()(const Near& a, const Near& b) const {
    return b.distance < a.distance || (b.distance == a.distance && b.index < a.index) ? b : a;
  }
};
__device__ Near swap_lanes(const Near& x, int distance) {
  return {cuda::swap_lanes(x.distance, distance), cuda::swap_lanes(x.index, distance)};
}

// products[i, j] = x_i c_j.
template <class T> struct Nearest {
  const T *products, *x, *codes;
  const double *row_norms, *code_norms;
  int64_t count, width;
  ScoreError error_of;
  int64_t* indices;

  __device__ double score(T product, int64_t j) const { return double(product) - code_norms[j] * code_norms[j] / 2; }
  template <class Team> __device__ void operator()(Team team, int64_t row) const {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const T* own = products + row * count;
    const auto error = [&](int64_t j) { return error_of(row_norms[row], code_norms[j]); };
    double best = -infinity;  // what the best score is at least
    for_each_value(
        team, count, [&](int64_t j, T product) { best = Larger{}(best, score(product, j) - error(j)); }, own);
    best = team.reduce(best, Larger{});
    Near near = {infinity, 0};
    const auto compare = [&](int64_t j, T product) {
      if (score(product, j) + error(j) < best) return;
      const double distance = squared_distance(x + row * width, codes + j * width, width);
      if (distance < infinity) near = Nearer{}(near, {distance, j});
    };
    for_each_value(team, count, compare, own);
    near = team.reduce(near, Nearer{});
    if (team.lane() == 0) indices[row] = near.index;
  }
};

}  // namespace
}  // namespace cuda

void CudaBackend::nearest_rows(const Tensor& x, const Tensor& codes, Tensor& indices) {
  visit_floating(x.dtype(), [&]<class Stored>() {
    using T = Compute<Stored>;
    const int64_t rows = x.shape()[0], count = codes.shape()[0], width = x.shape()[1];
    const Tensor wide = x.to(dtype_of<T>), table = codes.to(dtype_of<T>);
    const T *const from = wide.data<T>(), *const values = table.data<T>();
    const cuda::Scratch<double> row_norms(rows), code_norms(count);
    cuda::for_each_row(rows, width, cuda::Norms<T>{from, width, row_norms.data()});
    cuda::for_each_row(count, width, cuda::Norms<T>{values, width, code_norms.data()});
    const ScoreError error(tf32_ && dtype_of<T> == DType::f32 ? tf32 : precision_of<T>, width);

    const int64_t at_once = std::clamp<int64_t>(cuda::products_at_once / count, 1, rows);
    Tensor products({at_once, count}, dtype_of<T>, Device::cuda);
    for (int64_t first = 0; first < rows; first += at_once) {
      const int64_t some = std::min(at_once, rows - first);
      Tensor part = products.slice(0, some);
      matmul(wide.slice(first, first + some), false, table, true, {}, part);
      cuda::for_each_row(some, count,
                         cuda::Nearest<T>{part.data<T>(), from + first * width, values, row_norms.data() + first,
                                          code_norms.data(), count, width, error, indices.mutate<int64_t>() + first});
    }
  });
}

}  // namespace weft
