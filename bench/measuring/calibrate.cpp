// SPDX-License-Identifier: Apache-2.0
#include "bench/measuring/calibrate.h"

#include <cstdlib>
#include <cstring>

#include "bench/measuring/goal.h"
#include "weft/engine/kernels/backend.h"

namespace weft::bench {

Burst fma_peak() {
  Backend& cpu = backend(Device::cpu);
  return per(cpu.multiply_adds(), timed([&cpu] { cpu.multiply_adds(); }));
}

Burst triad() {
  constexpr int64_t n = 1 << 24;
  Tensor a({n}), b = Tensor::full({n}, 1), c = Tensor::full({n}, 2);
  return per(12.0 * n, timed([=]() mutable {
               float* to = a.mutate<float>();
               const float *x = b.data<float>(), *y = c.data<float>();
               for (int64_t i = 0; i < n; ++i) to[i] = x[i] + 3.0f * y[i];
             }));
}

Burst plain_copy(double bytes) {
  const Tensor from = Tensor::full({static_cast<int64_t>(bytes)}, 1, DType::u8);
  Tensor to = from.clone();
  return per(bytes, timed([=]() mutable { std::memcpy(to.mutate(), from.data(), from.bytes()); }));
}

namespace {

// The cost of a large buffer without a pool: the system provides zeroed pages and takes them back.
void fresh_buffer() {
  constexpr size_t bytes = 64 << 20;
  volatile char* block = static_cast<char*>(std::malloc(bytes));
  for (size_t i = 0; i < bytes; i += 4096) block[i] = 1;
  std::free(const_cast<char*>(block));
}

std::vector<Check> limits() {
  constexpr double large = 128 << 20, cached = 256 << 10;
  const Rounds rounds({fma_peak(), triad(), plain_copy(large), plain_copy(cached), timed(fresh_buffer)}, 5);
  const auto line = [&](size_t which, const char* what, const char* unit) {
    return Check{what, rate(1e-9 / rounds.median(which), unit), "", middle(scaled(rounds.of(which), 1e9))};
  };
  return {line(0, "fused multiply-adds", "GFLOP"),
          line(1, "triad", "GB"),
          line(2, "copy of 128 MB", "GB"),
          line(3, "copy of 256 KB", "GB"),
          {"malloc, touch, free 64 MB", duration(rounds.median(4)), "", middle(scaled(rounds.of(4), 1e9))}};
}

const Goal machine{"machine", "what one core of this machine does at best (value: ns per unit)", limits};

}  // namespace
}  // namespace weft::bench
