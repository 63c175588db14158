// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shared by the tests of the CPU backend: random tensors, loops over views, and a comparison with a named tolerance.
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/support/catch.h"
#include "weft/engine/kernels/backend.h"

namespace weft::checks {

using Values = std::vector<double>;
inline const double not_a_number = std::numeric_limits<double>::quiet_NaN(),
                    infinity = std::numeric_limits<double>::infinity();
inline const std::vector<DType> floating = {DType::f32, DType::f64, DType::bf16};
inline const std::vector<DType> all_types = {DType::f32, DType::f64, DType::bf16, DType::i64, DType::u8};
inline Backend& cpu() { return backend(Device::cpu); }
inline std::mt19937& generator() {
  static std::mt19937 instance(7);
  return instance;
}
// Small integers for integer types; otherwise quarters, which sometimes coincide and are exact in bf16.
inline Tensor sample(const Shape& shape, DType type, double low = -3, double high = 3) {
  Values values(static_cast<size_t>(shape.size()));
  for (double& v : values)
    v = is_floating(type) ? std::round(std::uniform_real_distribution(4 * low, 4 * high)(generator())) / 4
                          : std::uniform_int_distribution(0, 9)(generator());
  return Tensor::from(shape, values, type);
}
inline Tensor integers(const Shape& shape, int64_t below) {
  Values values(static_cast<size_t>(shape.size()));
  for (double& v : values) v = static_cast<double>(std::uniform_int_distribution<int64_t>(0, below - 1)(generator()));
  return Tensor::from(shape, values, DType::i64);
}
inline Shape shape_of(Along a) { return {a.outer, a.extent, a.inner}; }
inline Shape reduced(Along a) { return {a.outer, a.inner}; }
inline size_t at(Along a, int64_t o, int64_t e, int64_t j) {
  return static_cast<size_t>((o * a.extent + e) * a.inner + j);
}
template <class F> void for_each(Along a, F f) {
  for (int64_t o = 0; o < a.outer; ++o)
    for (int64_t e = 0; e < a.extent; ++e)
      for (int64_t j = 0; j < a.inner; ++j) f(o, e, j);
}

// Equal up to rounding in the tensor's type: `ulps` units in the last place of max(1, |value|).
inline bool close(const Tensor& y, const Values& expected, double ulps = 8) {
  const double unit = y.dtype() == DType::f32    ? 0x1p-23
                      : y.dtype() == DType::f64  ? 0x1p-50
                      : y.dtype() == DType::bf16 ? 0x1p-8
                                                 : 0;
  const Values values = y.values();
  if (values.size() != expected.size()) return false;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool same = values[i] == expected[i] || (std::isnan(values[i]) && std::isnan(expected[i]));
    if (!same && !(std::abs(values[i] - expected[i]) <= ulps * unit * std::max(1.0, std::abs(expected[i])))) {
      UNSCOPED_INFO(text(y.dtype()) << " element " << i << " is " << values[i] << ", expected " << expected[i]);
      return false;
    }
  }
  return true;
}
template <class F, class... X> Values mapped(F f, const Values& first, const X&... rest) {
  Values result(first.size());
  for (size_t i = 0; i < result.size(); ++i) result[i] = f(first[i], rest[i]...);
  return result;
}

template <class Op> std::vector<Op> listed(int count) {
  std::vector<Op> ops;
  for (int i = 0; i < count; ++i) ops.push_back(static_cast<Op>(i));
  return ops;
}

}  // namespace weft::checks
