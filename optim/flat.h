#pragma once
// Parameters side by side in one block of memory, so that whatever is done to all of them (a step of an optimizer, a
// reduction over ranks, a broadcast) is done to a few long ranges of consecutive elements.
//
//   | w1 .......... 0 | b1 . 0 | w2 ............... 0 | b2 .. 0 0 0 0 0 |
//   each begins at a multiple of 16 elements            the end is at a multiple of 1024
//
// Ranks divide the memory at multiples of 1024 elements. A parameter whose step needs all of it begins and ends at one
// and goes to one rank. Of a parameter that a group divides already (group_placement.h), every rank of the group makes
// room for the largest slice, so that all of them lay out, and divide, alike. What belongs to no parameter is zero and
// stays zero: every optimizer maps a zero gradient at a zero value to zero.
#include <functional>
#include <vector>

#include "engine/tape.h"

namespace weft {

// Elements [first, last) of flat memory.
struct Range {
  int64_t first = 0, last = 0;
  int64_t size() const { return last - first; }
  bool operator==(const Range&) const = default;
};
Range common(Range a, Range b);  // an empty range within a if they have nothing in common

// Where a parameter lies.
struct Place {
  Parameter* parameter;
  int64_t begin, size;  // in elements
  Range range() const { return {begin, begin + size}; }
};

class FlatLayout {
 public:
  static constexpr int64_t alignment = 16;  // 64 bytes of f32
  static constexpr int64_t block = 1024;

  using Which = std::function<bool(const Parameter&)>;

  FlatLayout() = default;
  // Of one dtype and on one device.
  explicit FlatLayout(const std::vector<Parameter*>& parameters, const Which& indivisible = {});

  const std::vector<Place>& places() const { return places_; }  // in the order given
  int64_t find(const Parameter& parameter) const;               // its place's index, or -1
  int64_t size() const { return size_; }                        // of the parameters alone
  int64_t padded_size() const { return padded_size_; }
  Range all() const { return {0, padded_size_}; }
  // The part of `parts` nearly equal ones that is number `index`.
  Range part(int64_t index, int64_t parts) const;
  DType dtype() const { return dtype_; }  // of the parameters
  Device device() const { return device_; }

 private:
  int64_t cut(int64_t index, int64_t parts) const;

  std::vector<Place> places_;
  std::vector<Range> indivisible_;  // whole blocks, in order
  ByParameter<int64_t> indices_;
  int64_t size_ = 0, padded_size_ = 0;
  DType dtype_ = DType::f32;
  Device device_ = Device::cpu;
};

// Memory in a layout: for gradients and, below, for the parameters themselves. A copy shares it, as with Tensors.
class FlatMemory {
 public:
  using Allocate = std::function<StorageHandle(size_t bytes)>;  // without one: the device's pool
  enum class Contents : uint8_t { zero, kept };                 // kept: of memory that another rank has filled

  FlatMemory() = default;
  explicit FlatMemory(FlatLayout layout, const Allocate& allocate = {}, Contents contents = Contents::zero);
  FlatMemory(FlatLayout layout, DType dtype, const Allocate& allocate = {}, Contents contents = Contents::zero);
  FlatMemory(FlatLayout layout, DType dtype, Range held);  // these elements only, zeros at first

  const FlatLayout& layout() const { return layout_; }
  Range held() const { return held_; }
  const Tensor& flat() const { return flat_; }  // of what is held
  Tensor& flat() { return flat_; }
  Tensor part(Range range) const { return flat_.slice(range.first - held_.first, range.last - held_.first); }
  // A parameter's part, in its shape; where only a range is held, those of its elements that are. Its storage is its
  // own, since a storage's version is how tapes notice that values were changed in place: changing one parameter does
  // not concern the tapes that use another.
  const Tensor& view(int64_t place) const { return views_[static_cast<size_t>(place)]; }
  // Tells the tapes that a parameter, or elements of a range, were changed other than through the views.
  void changed(int64_t place) { views_[static_cast<size_t>(place)].mutate(); }
  void changed(Range range);

 private:
  FlatLayout layout_;
  Range held_;
  Tensor flat_;
  std::vector<Tensor> views_;
};

// From here on every Parameter::value is a view of this memory, which lives as long as any of them.
class FlatParameters : public FlatMemory {
 public:
  FlatParameters() = default;
  // With Contents::kept the parameters take the values that the memory has.
  explicit FlatParameters(const FlatLayout& layout, const Allocate& allocate = {}, Contents contents = Contents::zero);
  explicit FlatParameters(const std::vector<Parameter*>& parameters, const Allocate& allocate = {},
                          Contents contents = Contents::zero)
      : FlatParameters(FlatLayout(parameters), allocate, contents) {}
  // Keeps these elements only. The parameters' values are given up: what is left has their shapes, for layers that ask,
  // but no memory, and is u8, so that every op which needs numbers refuses it.
  FlatParameters(const FlatLayout& layout, Range held);
  // Error if someone has put another tensor in the place of a parameter's value since.
  void must_hold(int64_t place) const;

 private:
  bool given_up_ = false;  // the parameters' values
};

}  // namespace weft
