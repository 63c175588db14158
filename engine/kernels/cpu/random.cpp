// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "weft/engine/kernels/cpu/cpu_backend.h"

namespace weft {
namespace {

constexpr int64_t draws_at_once = 512;

// `draws_at_once` draws from index `first` on, which is a multiple of four. The compiler knows each index modulo four,
// so it computes one philox block for its four floats or two doubles, and vectorises the loop.
template <class C, uint64_t... lane>
void draw_block(uint64_t seed, uint64_t stream, uint64_t first, C* __restrict draws,
                std::integer_sequence<uint64_t, lane...>) {
  constexpr int64_t width = sizeof...(lane), shift = width / 2;
  for (int64_t i = 0; i < draws_at_once / width; ++i)
    ((draws[i * width + lane] = uniform_draw<C>({seed, stream, 0}, ((first >> shift) + i) << shift | lane)), ...);
}

}  // namespace

void CpuBackend::uniform(Random random, double low, double high, Tensor& y) {
  visit_floating(y.dtype(), [&]<class T>() {
    using C = Compute<T>;
    const C shift = static_cast<C>(low), scale = static_cast<C>(high - low);
    C draws[draws_at_once];
    T* to = y.mutate<T>();
    for (int64_t i = -static_cast<int64_t>(random.offset % 4); i < y.size(); i += draws_at_once) {
      draw_block(random.seed, random.stream, random.offset + static_cast<uint64_t>(i), draws,
                 std::make_integer_sequence<uint64_t, 16 / sizeof(C)>());
      for (int64_t j = std::max<int64_t>(i, 0); j < std::min(i + draws_at_once, y.size()); ++j)
        to[j] = static_cast<T>(shift + scale * draws[j - i]);
    }
  });
}

void CpuBackend::normal(Random random, double mean, double deviation, Tensor& y) {
  visit_floating(y.dtype(), [&]<class T>() {
    using C = Compute<T>;
    T* to = y.mutate<T>();
    for (int64_t i = 0; i < y.size(); ++i)
      to[i] = static_cast<T>(static_cast<C>(mean) +
                             static_cast<C>(deviation) * normal_draw<C>(random, static_cast<uint64_t>(i)));
  });
}

}  // namespace weft
