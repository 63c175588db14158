// SPDX-License-Identifier: Apache-2.0
#pragma once
// Values with their indices, in the order of a stable sort in which NaN is the largest value. Values become unsigned
// numbers, which compare faster and also descend.
#include "weft/engine/kernels/cuda/launch.cuh"

namespace weft::cuda {

template <class T> using KeyOf = std::conditional_t<sizeof(T) < sizeof(uint64_t), uint32_t, uint64_t>;

template <class T> __device__ KeyOf<T> key_of(T of) {
  using Key = KeyOf<T>;
  constexpr Key sign = Key(1) << (8 * sizeof(Key) - 1);
  const Compute<T> value(of);
  if constexpr (std::is_floating_point_v<Compute<T>>) {
    if (value != value) return ~Key(0);
    const Key bits = std::bit_cast<Key>(value == 0 ? Compute<T>(0) : value);
    return bits & sign ? ~bits : bits | sign;
  } else {
    return Key(value) ^ sign;
  }
}

// The type is trivial, because it is in shared memory.
template <class Key> struct alignas(2 * sizeof(Key)) Ranked {
  Key key, index;

  __device__ static Ranked last() { return {~Key(0), ~Key(0)}; }  // after every other
  __device__ bool operator<(const Ranked& other) const {          // without branches
    return (key < other.key) | ((key == other.key) & (index < other.index));
  }
};
struct Earlier {
  template <class R> __device__ R operator()(const R& a, const R& b) const { return b < a ? b : a; }
};
template <class Key> __device__ Ranked<Key> swap_lanes(const Ranked<Key>& r, int distance) {
  return {swap_lanes(r.key, distance), swap_lanes(r.index, distance)};
}

// The lines of x along an axis, and the first k values of each in order.
template <class T> struct Ordered {
  const T* x;
  Along along;
  int64_t k;
  bool descending;
  T* values;
  int64_t* indices;

  __device__ const T* line(int64_t number) const {
    const auto [o, j] = split(number, along.inner);
    return x + o * along.extent * along.inner + j;
  }
  template <class Key = KeyOf<T>> __device__ Ranked<Key> read(const T* line, int64_t e) const {
    const KeyOf<T> key = key_of(line[e * along.inner]);
    return {descending ? KeyOf<T>(~key) : key, static_cast<Key>(e)};
  }
  template <class Key> __device__ void write(int64_t number, int64_t place, const Ranked<Key>& r) const {
    const auto [o, j] = split(number, along.inner);
    const int64_t at = (o * k + place) * along.inner + j, index = static_cast<int64_t>(r.index);
    values[at] = line(number)[index * along.inner];
    indices[at] = index;
  }
};

}  // namespace weft::cuda
