// SPDX-License-Identifier: Apache-2.0
#pragma once
// Flat memory: parameters are consecutive in one block of memory, so that an optimizer step, a reduction over ranks or
// a broadcast works on a few long ranges of elements.
//
//   | w1 .......... 0 | b1 . 0 | w2 ............... 0 | b2 .. 0 0 0 0 0 |
//   each begins at a multiple of 16 elements            the end is at a multiple of 1024
//
// Ranks divide the memory at multiples of 1024 elements. A parameter that a step needs whole begins and ends at such a
// multiple and belongs to one rank. If a group divides a parameter already (collectives/sharding.h), every rank of
// the group reserves the size of the largest slice, so that all of them have the same layout. Elements of no parameter
// are zero and stay zero, since every optimizer maps a zero gradient at a zero value to zero.
#include <functional>
#include <vector>

#include "weft/engine/tape/tape.h"

namespace weft {

// Elements [first, last) of flat memory.
struct Range {
  int64_t first = 0, last = 0;
  int64_t size() const { return last - first; }
  bool operator==(const Range&) const = default;
};
Range intersection(Range a, Range b);  // an empty range within a if they are disjoint

// The position of a parameter in flat memory.
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
  // All parameters must have one dtype and be on one device.
  explicit FlatLayout(const std::vector<Parameter*>& parameters, const Which& indivisible = {});

  const std::vector<Place>& places() const { return places_; }  // in the order given
  int64_t find(const Parameter& parameter) const;               // the index of its place, or -1
  int64_t size() const { return size_; }                        // of the parameters alone
  int64_t padded_size() const { return padded_size_; }
  Range all() const { return {0, padded_size_}; }
  // Part number `index` of `parts` nearly equal parts.
  Range part(int64_t index, int64_t parts) const;
  DType dtype() const { return dtype_; }  // of the parameters
  Device device() const { return device_; }

 private:
  int64_t cut(int64_t index, int64_t parts) const;

  std::vector<Place> places_;
  std::vector<Range> indivisible_;  // in order, each of whole blocks
  ByParameter<int64_t> indices_;
  int64_t size_ = 0, padded_size_ = 0;
  DType dtype_ = DType::f32;
  Device device_ = Device::cpu;
};

// Memory with a layout, for gradients and, below, for the parameters themselves. A copy shares the memory, as with
// Tensors.
class FlatMemory {
 public:
  using Allocate = std::function<StorageHandle(size_t bytes)>;  // if undefined, the device's pool allocates
  enum class Contents : uint8_t { zero, kept };                 // `kept` is for memory that another rank has filled

  FlatMemory() = default;
  explicit FlatMemory(FlatLayout layout, const Allocate& allocate = {}, Contents contents = Contents::zero);
  FlatMemory(FlatLayout layout, DType dtype, const Allocate& allocate = {}, Contents contents = Contents::zero);
  FlatMemory(FlatLayout layout, DType dtype, Range held);  // holds only these elements, initially zero

  const FlatLayout& layout() const { return layout_; }
  Range held() const { return held_; }
  const Tensor& flat() const { return flat_; }  // the held elements
  Tensor& flat() { return flat_; }
  Tensor part(Range range) const { return flat_.slice(range.first - held_.first, range.last - held_.first); }
  // A parameter's part, in its shape; if only a range is held, its held elements as a vector. Every view has its own
  // storage, because tapes detect changes in place by the version of a storage: changing one parameter must not
  // invalidate tapes that use another.
  const Tensor& view(int64_t place) const { return views_[static_cast<size_t>(place)]; }
  // Marks a parameter, or the parameters in a range, as changed for the tapes. Needed after changes that did not go
  // through the views.
  void changed(int64_t place) { views_[static_cast<size_t>(place)].mutate(); }
  void changed(Range range);

 private:
  FlatLayout layout_;
  Range held_;
  Tensor flat_;
  std::vector<Tensor> views_;
};

// Moves parameters to flat memory: every Parameter::value becomes a view, and the memory lives as long as any view.
class FlatParameters : public FlatMemory {
 public:
  FlatParameters() = default;
  // With Contents::kept the parameters take the values in the memory.
  explicit FlatParameters(const FlatLayout& layout, const Allocate& allocate = {}, Contents contents = Contents::zero);
  explicit FlatParameters(const std::vector<Parameter*>& parameters, const Allocate& allocate = {},
                          Contents contents = Contents::zero)
      : FlatParameters(FlatLayout(parameters), allocate, contents) {}
  // Keeps only these elements and releases the parameters' values. Each value keeps its shape, which layers may query,
  // but has no memory and the type u8, so that every op on numbers refuses it.
  FlatParameters(const FlatLayout& layout, Range held);
  // Error if a parameter's value is no longer the view, because another tensor has been assigned to it.
  void must_hold(int64_t place) const;

 private:
  bool released_ = false;  // the parameters' values have no memory
};

}  // namespace weft
