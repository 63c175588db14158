// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/flat.h"

#include <algorithm>
#include <new>

#include "weft/collectives/sharding.h"
#include "weft/engine/kernels/backend.h"

namespace weft {
namespace {

constexpr int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// A part of another storage, with a version of its own.
struct PartialStorage : Storage {
  StorageHandle whole;
  PartialStorage(const StorageHandle& whole, size_t first_byte, size_t bytes)
      : Storage(static_cast<char*>(whole->data) + first_byte, bytes, whole->device, give), whole(whole) {}
  static void give(Storage* storage) {
    static_cast<PartialStorage*>(storage)->~PartialStorage();
    pool::give(storage, sizeof(PartialStorage));
  }
};

Tensor part_of(const StorageHandle& whole, int64_t begin, const Shape& shape, DType dtype) {
  const size_t element = size_of(dtype), bytes = static_cast<size_t>(shape.size()) * element;
  void* memory = pool::take(sizeof(PartialStorage));
  Storage* part = new (memory) PartialStorage(whole, static_cast<size_t>(begin) * element, bytes);
  return {StorageHandle(part), 0, shape, dtype};
}

// The elements that a parameter reserves, the same number on every rank of a group that divides it.
int64_t reserved_size(const Parameter& parameter) {
  const Shape& shape = parameter.value.shape();
  if (!is_divided(parameter)) return shape.size();
  const auto& [group, axis, extents] = *parameter.sharding;
  return shape.with(axis, *std::max_element(extents.begin(), extents.end())).size();
}

Tensor without_memory(const Tensor& value) {
  const auto give = [](Storage* storage) {
    storage->~Storage();
    pool::give(storage, sizeof(Storage));
  };
  Storage* nothing = new (pool::take(sizeof(Storage)))
      Storage(nullptr, static_cast<size_t>(value.size()) * size_of(DType::u8), value.device(), give);
  return {StorageHandle(nothing), 0, value.shape(), DType::u8};
}

}  // namespace

Range intersection(Range a, Range b) {
  return {std::clamp(b.first, a.first, a.last), std::clamp(b.last, a.first, a.last)};
}

FlatLayout::FlatLayout(const std::vector<Parameter*>& parameters, const Which& indivisible) {
  if (!parameters.empty()) {
    dtype_ = parameters[0]->value.dtype();
    device_ = parameters[0]->value.device();
  }
  int64_t end = 0;
  for (Parameter* parameter : parameters) {
    const Tensor& value = parameter->value;
    require(value.dtype() == dtype_ && value.device() == device_, "flat: ", parameter->name, " is ", value.dtype(),
            " on ", value.device(), " beside ", dtype_, " on ", device_, "; each kind needs flat memory of its own");
    require(value.data() || value.size() == 0, "flat: ", parameter->name,
            " has no values here, since they are already divided among the ranks");
    require(indices_.emplace(parameter, static_cast<int64_t>(places_.size())).second, "flat: ", parameter->name,
            " is there twice");
    const bool whole = indivisible && indivisible(*parameter);
    if (whole) end = round_up(end, block);
    places_.push_back({parameter, end, value.size()});
    size_ += value.size();
    end = round_up(end + reserved_size(*parameter), whole ? block : alignment);
    if (whole) indivisible_.push_back({places_.back().begin, end});
  }
  padded_size_ = round_up(end, block);
}

int64_t FlatLayout::find(const Parameter& parameter) const {
  const auto found = indices_.find(&parameter);
  return found == indices_.end() ? -1 : found->second;
}

Range FlatLayout::part(int64_t index, int64_t parts) const {
  require(0 <= index && index < parts, "flat: there is no part ", index, " of ", parts);
  return {cut(index, parts), cut(index + 1, parts)};
}

// The begin of part number `index` of equal parts, moved to the nearer end of a parameter that may not be cut.
int64_t FlatLayout::cut(int64_t index, int64_t parts) const {
  const int64_t at = padded_size_ / block * index / parts * block;
  const auto after = std::upper_bound(indivisible_.begin(), indivisible_.end(), at,
                                      [](int64_t at, const Range& range) { return at < range.last; });
  if (after == indivisible_.end() || at <= after->first) return at;
  return at - after->first < after->last - at ? after->first : after->last;
}

FlatMemory::FlatMemory(FlatLayout layout, const Allocate& allocate, Contents contents)
    : FlatMemory(layout, layout.dtype(), allocate, contents) {}

FlatMemory::FlatMemory(FlatLayout layout, DType dtype, const Allocate& allocate, Contents contents)
    : layout_(std::move(layout)), held_(layout_.all()) {
  const size_t bytes = static_cast<size_t>(layout_.padded_size()) * size_of(dtype);
  const StorageHandle memory = allocate ? allocate(bytes) : StorageHandle(backend(layout_.device()).allocate(bytes));
  require(memory->device == layout_.device(), "flat: memory on ", memory->device, " for parameters on ",
          layout_.device());
  flat_ = Tensor(memory, 0, {layout_.padded_size()}, dtype);
  if (contents == Contents::zero) backend(layout_.device()).fill(0, flat_);
  for (const Place& place : layout_.places())
    views_.push_back(part_of(memory, place.begin, place.parameter->value.shape(), dtype));
}

FlatMemory::FlatMemory(FlatLayout layout, DType dtype, Range held) : layout_(std::move(layout)), held_(held) {
  const size_t bytes = static_cast<size_t>(held.size()) * size_of(dtype);
  const StorageHandle memory(backend(layout_.device()).allocate(bytes));
  flat_ = Tensor(memory, 0, {held.size()}, dtype);
  backend(layout_.device()).fill(0, flat_);
  for (const Place& place : layout_.places()) {
    const Range mine = intersection(held, place.range());
    views_.push_back(part_of(memory, mine.first - held.first, {mine.size()}, dtype));
  }
}

void FlatMemory::changed(Range range) {
  const std::vector<Place>& places = layout_.places();
  for (size_t i = 0; i < places.size(); ++i)
    if (intersection(places[i].range(), range).size() > 0) changed(static_cast<int64_t>(i));
}

FlatParameters::FlatParameters(const FlatLayout& layout, const Allocate& allocate, Contents contents)
    : FlatMemory(layout, allocate, contents) {
  for (size_t i = 0; i < layout.places().size(); ++i) {
    Parameter& parameter = *layout.places()[i].parameter;
    Tensor here = view(static_cast<int64_t>(i));
    if (contents == Contents::zero) here.copy_from(parameter.value);
    parameter.value = here;
  }
}

FlatParameters::FlatParameters(const FlatLayout& layout, Range held)
    : FlatMemory(layout, layout.dtype(), held), released_(true) {
  for (size_t i = 0; i < layout.places().size(); ++i) {
    const auto& [parameter, begin, size] = layout.places()[i];
    const Range mine = intersection({begin, begin + size}, held);
    Tensor here = view(static_cast<int64_t>(i));
    here.copy_from(parameter->value.reshape({size}).slice(mine.first - begin, mine.last - begin));
    parameter->value = without_memory(parameter->value);
  }
}

void FlatParameters::must_hold(int64_t place) const {
  const Parameter& parameter = *layout().places()[static_cast<size_t>(place)].parameter;
  const bool held = released_ ? !parameter.value.data() : parameter.value.shares_memory_with(view(place));
  require(held, "flat: the value of ", parameter.name,
          " was replaced; copy into it instead, since it is a part of flat memory");
}

}  // namespace weft
