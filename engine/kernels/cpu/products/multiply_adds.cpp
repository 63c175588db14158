// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/kernels/cpu/cpu_backend.h"
#include "weft/engine/kernels/cpu/simd.h"

namespace weft {

// The factors must be unknown to the compiler and the sums must be used, otherwise it removes the loop.
double CpuBackend::multiply_adds() {
  constexpr int chains = 12;  // enough independent sums to cover the latency of two units
  constexpr int64_t steps = 1 << 16;
  using V = cpu::Vector<float>;
  volatile float opaque = 0.999f;
  const V factor = cpu::broadcast<float>(opaque), addend = cpu::broadcast<float>(opaque);
  V sum[chains];
  for (V& s : sum) s = addend;
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < chains; ++c) sum[c] = cpu::fused_multiply_add(sum[c], factor, addend);
  }
  for (int c = 1; c < chains; ++c) sum[0] += sum[c];
  volatile float escape = sum[0][0];
  static_cast<void>(escape);
  return 2.0 * steps * chains * cpu::lanes<float>;
}

}  // namespace weft
