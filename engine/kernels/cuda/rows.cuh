// SPDX-License-Identifier: Apache-2.0
#pragma once
// Functions for the verbs on rows. A warp or a block processes each row and reads it once per pass, mostly from cache.
#include "weft/engine/kernels/cuda/launch.cuh"
#include "weft/engine/kernels/scalar_ops.h"

namespace weft::cuda {

// The sum of f(values...) over a row, with one value from each of `rows`.
template <class Team, class F, class T, class... Others>
__device__ Compute<T> sum_over(Team team, int64_t n, const F& f, const T* row, const Others*... rows) {
  Compute<T> sum = 0;
  for_each_value(
      team, n, [&](int64_t, auto... values) { sum += f(Compute<T>(values)...); }, row, rows...);
  return team.reduce(sum, Add{});
}

struct Constant {
  template <class T> __device__ T operator()(T x) const { return x; }
};

// Runs kernel(n) for each row of x, n values long.
template <class F> void for_rows_of(const Tensor& x, const F& kernel) {
  const int64_t n = x.shape()[-1];
  for_each_row(x.shape().product(0, x.shape().rank() - 1), n, kernel(n));
}

}  // namespace weft::cuda
