// SPDX-License-Identifier: Apache-2.0
#pragma once
// f32 values as sums of bf16 values, whose products tensor cores compute exactly. Three of them have all 24 bits of an
// f32 value. Of the nine products of two such sums six are enough: the others are smaller than the rounding of f32.
#include "weft/engine/kernels/cuda/launch.cuh"

namespace weft::cuda {

constexpr int parts_of_f32 = 3;

template <int count> struct Parts { BFloat16 at[count]; };

// The greatest part first. It is cut, not rounded, so that no finite value becomes infinite. An infinite one has no
// rest.
template <int count> WEFT_HD Parts<count> in_parts(float x) {
  Parts<count> parts;
  parts.at[0] = BFloat16(x - x == 0 ? std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0xffff0000u) : x);
  float rest = x - x == 0 ? x - float(parts.at[0]) : 0;
#pragma unroll
  for (int k = 1; k < count; ++k) {
    parts.at[k] = BFloat16(rest);
    rest -= float(parts.at[k]);
  }
  return parts;
}

// A row of y has one row of each part of a row of x.
struct RowsInParts {
  int64_t width;
  const float* x;
  BFloat16* y;
  __device__ void operator()(int64_t i) const {
    const auto [row, column] = split(i, width);
    const Parts<parts_of_f32> parts = in_parts<parts_of_f32>(x[i]);
#pragma unroll
    for (int part = 0; part < parts_of_f32; ++part) y[(row * parts_of_f32 + part) * width + column] = parts.at[part];
  }
};
inline Tensor rows_in_parts(const Tensor& x) {
  const int64_t rows = x.shape()[0], width = x.shape()[1];
  Tensor y({rows, width * parts_of_f32}, DType::bf16, Device::cuda);
  for_each(x.size(), RowsInParts{width, x.data<float>(), y.mutate<BFloat16>()});
  return y;
}
// The inverse for sums of products: a row of x has one row for each part of a factor, which are added.
struct SumOfParts {
  int64_t width;
  const float* x;
  float* y;
  __device__ void operator()(int64_t i) const {
    const auto [row, column] = split(i, width);
    const float* const parts = x + row * width * parts_of_f32 + column;
    y[i] = parts[2 * width] + parts[width] + parts[0];
  }
};
inline Tensor sum_of_parts(const Tensor& x) {
  const int64_t rows = x.shape()[0], width = x.shape()[1] / parts_of_f32;
  Tensor y({rows, width}, DType::f32, Device::cuda);
  for_each(y.size(), SumOfParts{width, x.data<float>(), y.mutate<float>()});
  return y;
}

}  // namespace weft::cuda
