// SPDX-License-Identifier: Apache-2.0
#pragma once
// a * b + c in f32, rounded once, on CPUs that have no instruction for it.
#include <cmath>
#include <cstdint>

namespace weft::cpu {

#if defined(FP_FAST_FMAF)
inline constexpr bool has_fused_multiply_add = true;
#else
inline constexpr bool has_fused_multiply_add = false;
#endif

typedef float FourFloats __attribute__((vector_size(16)));

/// The product of two f32 is exact in f64. A sum that is rounded to f64 and then to f32 is as if rounded once, unless
/// the first rounding ends halfway between two f32, or the result is so small that f32 has fewer bits for it. Only
/// these few are left to std::fma, which takes far longer without the instruction.
inline FourFloats multiply_add_in_f64(FourFloats a, FourFloats b, FourFloats c) {
  typedef double Wide __attribute__((vector_size(32)));
  typedef int32_t Halves __attribute__((vector_size(32)));
  typedef int32_t Bits __attribute__((vector_size(16)));
  typedef int64_t Pairs __attribute__((vector_size(16)));
  const Wide product = __builtin_convertvector(a, Wide) * __builtin_convertvector(b, Wide);
  const Wide sum = product + __builtin_convertvector(c, Wide);
  FourFloats result = __builtin_convertvector(sum, FourFloats);

  const Halves halves = (Halves)sum;
  const Bits beyond_f32 = __builtin_shufflevector(halves, halves, 0, 2, 4, 6) & 0x1fff'ffff;
  const Bits size = __builtin_shufflevector(halves, halves, 1, 3, 5, 7) & 0x7fff'ffff;
  const Bits is_halfway = beyond_f32 == 0x1000'0000;
  const Bits is_small = (size < 0x3810'0000) & (size != 0);  // less than 2^-126
  if (const Pairs any = (Pairs)(is_halfway | is_small); any[0] | any[1]) [[unlikely]]
    for (int lane = 0; lane < 4; ++lane) result[lane] = std::fma(a[lane], b[lane], c[lane]);
  return result;
}

}  // namespace weft::cpu
