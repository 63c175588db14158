// SPDX-License-Identifier: Apache-2.0
#pragma once
// Samples on the card, and comparisons of the card's results with the CPU's.
#include <cmath>
#include <limits>
#include <random>

#include "tests/support/catch.h"
#include "weft/engine/kernels/backend.h"

namespace weft {

using Tensors = std::vector<Tensor>;
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
inline const std::vector<DType> floating = {DType::f32, DType::f64, DType::bf16};
inline const std::vector<DType> all_types = {DType::f32, DType::f64, DType::bf16, DType::i64, DType::u8};
inline const std::vector<Shape> shapes = {{}, {0}, {1}, {3, 0, 2}, {7, 11}, {16, 64}, {5, 3, 33}, {40, 1031}};
inline const std::vector<Along> views = {{1, 1, 1},     {3, 5, 1},   {2, 7, 3},    {1, 1003, 1}, {2, 130, 40},
                                         {1, 300, 601}, {5, 64, 1},  {1, 9001, 1}, {1, 999, 31}, {1, 5001, 3},
                                         {40, 3, 1},    {2, 1, 700}, {0, 3, 2},    {3, 4, 0},    {3, 0, 4}};

#define SKIP_WITHOUT_A_CARD()         \
  if (!available(Device::cuda)) {     \
    WARN("no card answers: skipped"); \
    return;                           \
  }

inline std::mt19937& generator() {
  static std::mt19937 instance(11);
  return instance;
}
// Quarters, or small integers for integer types.
inline Tensor sample(const Shape& shape, DType type, double low = -3, double high = 3) {
  std::vector<double> values(static_cast<size_t>(shape.size()));
  for (double& v : values)
    v = is_floating(type) ? std::round(std::uniform_real_distribution(4 * low, 4 * high)(generator())) / 4
                          : std::uniform_int_distribution(0, 9)(generator());
  return Tensor::from(shape, values, type);
}
inline Tensor integers(const Shape& shape, int64_t below) {
  std::vector<double> values(static_cast<size_t>(shape.size()));
  for (double& v : values) v = static_cast<double>(std::uniform_int_distribution<int64_t>(0, below - 1)(generator()));
  return Tensor::from(shape, values, DType::i64);
}
inline Indices indices(const Tensor& numbers, int64_t bound) { return {{"a test", "index"}, numbers, bound}; }
inline Indices columns(const Tensor& numbers, int64_t bound) {  // negative for none
  return {{"a test", "column"}, numbers, bound, Indices::Negative::none};
}
inline Tensor with_specials(Tensor x) {
  if (!is_floating(x.dtype()) || x.size() < 8) return x;
  const Tensor specials = Tensor::from({5}, {not_a_number, infinity, -infinity, 0.0, -0.0});
  x.reshape({x.size()}).slice(2, 7).copy_from(specials.to(x.dtype()));
  return x;
}
inline Shape shape_of(Along a) { return {a.outer, a.extent, a.inner}; }
inline Shape reduced(Along a) { return {a.outer, a.inner}; }
inline double units(DType type, double wide) { return type == DType::bf16 ? 1 : wide; }  // wide: for f32 and f64

// On the card; every other sample is misaligned, so that vector access is impossible.
inline Tensor on_card(const Tensor& x) {
  static int calls = 0;
  if (++calls % 2 == 0) return x.to(Device::cuda);
  Tensor view = Tensor({x.size() + 1}, x.dtype(), Device::cuda).slice(1, x.size() + 1).reshape(x.shape());
  view.copy_from(x);
  return view;
}

inline bool close(const Tensor& card, const Tensor& host, double ulps) {
  const DType t = host.dtype();
  const double unit = t == DType::f32 ? 0x1p-23 : t == DType::f64 ? 0x1p-52 : t == DType::bf16 ? 0x1p-7 : 0;
  const std::vector<double> values = card.values(), expected = host.values();
  for (size_t i = 0; i < values.size(); ++i) {
    const double v = values[i], e = expected[i];
    if (v == e || (std::isnan(v) && std::isnan(e))) continue;
    if (std::abs(v - e) <= ulps * unit * std::max(1.0, std::abs(e))) continue;
    UNSCOPED_INFO(text(t) << " element " << i << " is " << v << " on the card and " << e << " on the CPU");
    return false;
  }
  return true;
}

// Runs verb(backend, in, out) on both devices, with equal inputs and equal initial outputs.
template <class Verb> void compare(double ulps, const Tensors& in, Tensors out, const Verb& verb) {
  Tensors card_in, card_out;
  for (const Tensor& x : in) card_in.push_back(on_card(x));
  for (Tensor& y : out) card_out.push_back(on_card(y = y.clone()));
  verb(backend(Device::cpu), in, out);
  verb(backend(Device::cuda), card_in, card_out);
  for (size_t i = 0; i < out.size(); ++i) CHECK(close(card_out[i], out[i], ulps));
}
#define VERB(...) [&](Backend& d, [[maybe_unused]] const Tensors& in, Tensors& out) { d.__VA_ARGS__; }

// For its lifetime.
struct AllowedTf32 {
  AllowedTf32() { backend(Device::cuda).allow_tf32(true); }
  ~AllowedTf32() { backend(Device::cuda).allow_tf32(false); }
};

template <class Op> std::vector<Op> first(int count) {
  std::vector<Op> ops;
  for (int i = 0; i < count; ++i) ops.push_back(static_cast<Op>(i));
  return ops;
}

}  // namespace weft
