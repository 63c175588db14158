// SPDX-License-Identifier: Apache-2.0
#pragma once
// The extents of a tensor, outermost first; {} is a scalar. The extents are stored inline, because every recorded op
// copies shapes.
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>

#include "weft/engine/tensor/error.h"

namespace weft {

class Shape {
 public:
  static constexpr int max_rank = 6;
  // No shape has more elements than this, even with ones in place of its zeros, so the number of bytes of any tensor,
  // and the size of any part of a shape, fits into an int64_t. A larger shape is an Error.
  static constexpr int64_t max_size = std::numeric_limits<int64_t>::max() / 8;

  Shape() = default;
  Shape(std::initializer_list<int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const int64_t> extents) : rank_(static_cast<int>(extents.size())) {
    require(rank_ <= max_rank, "shape: ", rank_, " axes, but at most ", int{max_rank}, " are supported");
    for (int i = 0; i < rank_; ++i) extents_[i] = extents[i];
    check();
  }

  // Whether these extents make a valid shape: none is negative, and they are not too large.
  static bool fits(std::span<const int64_t> extents) {
    int64_t size = 1, signs = 0;
    bool overflow = false;
    for (const int64_t extent : extents) {
      signs |= extent;
      overflow |= __builtin_mul_overflow(size, extent + (extent == 0), &size);
    }
    return signs >= 0 && !overflow && size <= max_size;
  }

  int rank() const { return rank_; }
  int64_t size() const { return product(0, rank_); }
  int64_t operator[](int axis) const { return extents_[index(axis)]; }
  const int64_t* begin() const { return extents_; }
  const int64_t* end() const { return extents_ + rank_; }

  // A negative axis counts from the last: -1 is the innermost.
  int index(int axis) const {
    const int i = axis < 0 ? axis + rank_ : axis;
    require(i >= 0 && i < rank_, "shape: axis ", axis, " of ", *this, ", which has ", rank_, " axes");
    return i;
  }
  int64_t product(int first, int last) const {
    int64_t size = 1;
    for (int i = first; i < last; ++i) size *= extents_[i];
    return size;
  }
  Shape with(int axis, int64_t extent) const {
    Shape result = *this;
    result.extents_[index(axis)] = extent;
    result.check();
    return result;
  }
  Shape without(int axis) const {
    Shape result;
    for (int i = 0, skip = index(axis); i < rank_; ++i)
      if (i != skip) result.extents_[result.rank_++] = extents_[i];
    return result;
  }
  Shape with_inserted(int axis, int64_t extent) const {  // the new axis has the index `axis`
    const int at = axis < 0 ? axis + rank_ + 1 : axis;
    require(at >= 0 && at <= rank_ && rank_ < max_rank, "shape: no place for a new axis ", axis, " in ", *this);
    Shape result;
    result.rank_ = rank_ + 1;
    for (int i = 0; i < result.rank_; ++i)
      result.extents_[i] = i < at ? extents_[i] : i == at ? extent : extents_[i - 1];
    result.check();
    return result;
  }
  bool operator==(const Shape& other) const = default;

  std::string text() const {
    std::string result = "(";
    for (int i = 0; i < rank_; ++i) result.append(i ? ", " : "").append(std::to_string(extents_[i]));
    return result.append(")");
  }

 private:
  void check() const {
    if (!fits({begin(), end()})) [[unlikely]]
      throw_invalid();
  }
  [[noreturn]] void throw_invalid() const;

  int64_t extents_[max_rank] = {};  // zero beyond the rank, so that shapes can be compared member by member
  int rank_ = 0;
};

inline std::string text(const Shape& shape) { return shape.text(); }

// The sum of extents, or of counts of rows. A sum that overflows is the largest number, which no shape accepts.
inline int64_t sum_of_extents(std::span<const int64_t> extents) {
  int64_t sum = 0;
  for (const int64_t extent : extents)
    if (__builtin_add_overflow(sum, extent, &sum)) return std::numeric_limits<int64_t>::max();
  return sum;
}
inline int64_t sum_of_extents(std::initializer_list<int64_t> extents) {
  return sum_of_extents(std::span(extents.begin(), extents.size()));
}

// A contiguous tensor along one axis: `outer` blocks of `extent` slices of `inner` elements.
struct Along {
  int64_t outer, extent, inner;
  Along(int64_t outer, int64_t extent, int64_t inner) : outer(outer), extent(extent), inner(inner) {}
  Along(const Shape& shape, int axis)
      : outer(shape.product(0, shape.index(axis))),
        extent(shape[axis]),
        inner(shape.product(shape.index(axis) + 1, shape.rank())) {}
};

}  // namespace weft
