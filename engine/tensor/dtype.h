// SPDX-License-Identifier: Apache-2.0
#pragma once
// The element types of a Tensor, and the functions that turn the run-time tag into a C++ type.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "weft/engine/maths/format.h"  // WEFT_HD
#include "weft/engine/tensor/error.h"
#include "weft/engine/tensor/half.h"

namespace weft {

enum class DType : uint8_t { f32, f64, bf16, i64, u8 };

// The upper half of an IEEE float. It is for storage only: every kernel computes in float and rounds once, to nearest
// even.
struct BFloat16 {
  uint16_t bits;
  BFloat16() = default;
  WEFT_HD explicit BFloat16(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<uint16_t>(nan ? (word >> 16) | 0x40u : (word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
  WEFT_HD operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

constexpr size_t size_of(DType type) {
  switch (type) {
    case DType::f32: return 4;
    case DType::bf16: return 2;
    case DType::u8: return 1;
    default: return 8;
  }
}
constexpr bool is_floating(DType type) { return type == DType::f32 || type == DType::f64 || type == DType::bf16; }
inline std::string text(DType type) {
  constexpr const char* names[] = {"f32", "f64", "bf16", "i64", "u8"};
  return names[static_cast<int>(type)];
}

template <class T> struct dtype_of_impl;
template <> struct dtype_of_impl<float> { static constexpr DType value = DType::f32; };
template <> struct dtype_of_impl<double> { static constexpr DType value = DType::f64; };
template <> struct dtype_of_impl<BFloat16> { static constexpr DType value = DType::bf16; };
template <> struct dtype_of_impl<int64_t> { static constexpr DType value = DType::i64; };
template <> struct dtype_of_impl<uint8_t> { static constexpr DType value = DType::u8; };
template <class T> constexpr DType dtype_of = dtype_of_impl<T>::value;

// The type in which kernels compute with elements of type T.
template <class T> using Compute = std::conditional_t<std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>, float, T>;

// Calls f.template operator()<T>() with the C++ type behind a dtype.
template <class F> decltype(auto) visit(DType type, F&& f) {
  switch (type) {
    case DType::f32: return f.template operator()<float>();
    case DType::f64: return f.template operator()<double>();
    case DType::bf16: return f.template operator()<BFloat16>();
    case DType::i64: return f.template operator()<int64_t>();
    case DType::u8: break;
  }
  return f.template operator()<uint8_t>();
}
// The same for kernels of floating types only. Ops check the type before, in errors that name the op.
template <class F> decltype(auto) visit_floating(DType type, F&& f) {
  switch (type) {
    case DType::f32: return f.template operator()<float>();
    case DType::bf16: return f.template operator()<BFloat16>();
    default: require(type == DType::f64, "kernel: a floating type is needed, not ", type); break;
  }
  return f.template operator()<double>();
}

}  // namespace weft
