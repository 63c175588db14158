// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/shared/shared_memory.h"

#include <algorithm>

#include "weft/collectives/fold.h"
#include "weft/collectives/transports/shared/group_state.h"
#include "weft/engine/kernels/backend.h"

namespace weft {
namespace {

// Up to this size a copy costs less than a second step, and folding all bytes on every rank costs less than waiting for
// slices folded by others.
constexpr size_t few_bytes = size_t{16} << 10;
constexpr size_t part_in_place = size_t{1} << 20;

// A copy on a card is complete when this returns.
void copy(Device device, std::byte* to, const std::byte* from, size_t bytes) {
  if (device == Device::cpu) {
    std::memcpy(to, from, bytes);
  } else {
    backend(device).copy(to, from, bytes);
    backend(device).synchronize();
  }
}

void put(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes) std::memcpy(to, from, bytes);
}

}  // namespace

bool SharedMemory::visible(Bytes bytes) const {
  return address_space_ == AddressSpace::one_process || bytes.empty() || job_->contains(bytes.data());
}

void SharedMemory::publish(CallScope& scope, Bytes mine, Bytes result) const {
  const BufferOffsets offsets{visible(mine), visible(result), job_->offset_of(mine.data()),
                              job_->offset_of(result.data())};
  std::memcpy(scope.slot().bytes, &offsets, sizeof offsets);
}

SharedMemory::Visibility SharedMemory::locate_buffers(uint64_t step) {
  Visibility visibility{false, true, true};
  for (int r = 0; r < size_; ++r) {
    BufferOffsets theirs;
    std::memcpy(&theirs, slot(r, step).bytes, sizeof theirs);
    inputs_[static_cast<size_t>(r)] = theirs.in_place ? job_->address(theirs.bytes) : nullptr;
    results_[static_cast<size_t>(r)] = job_->address(theirs.result);
    visibility = {visibility.any || theirs.in_place, visibility.all && theirs.in_place,
                  visibility.results && theirs.result_in_place};
  }
  return visibility;
}

std::span<const std::byte* const> SharedMemory::peers(size_t first, uint64_t step, size_t skipped) {
  for (int r = 0; r < size_; ++r) {
    const std::byte* place = inputs_[static_cast<size_t>(r)];
    peers_[static_cast<size_t>(r)] = place ? place + first : staged(r, step) + skipped;
  }
  return peers_;
}

// Every rank could read all bytes, so it does not matter which it will read.
void SharedMemory::exchange(const Call& call, Bytes mine, size_t longest, Ranges, Read read) {
  CallScope scope(*this, call, longest);
  // The memory of a card is never staged.
  const bool on_card = call.device != Device::cpu && shows_device_memory() && longest > 0;
  if (longest <= few_bytes && !on_card) return expose_in_one_step(scope, mine, longest, read);
  publish(scope, mine, {});
  size_t length = part_;
  Visibility visibility{};
  for (size_t first = 0; first < longest; first += length) {
    const uint64_t step = scope.step();
    if (!visible(mine) && first < mine.size())
      put(grow(rank_slots_[rank_].staged[step % 2], std::min(part_, mine.size())), mine.data() + first,
          std::min(part_, mine.size() - first));
    scope.complete_step();
    if (first == 0) {
      visibility = locate_buffers(step);
      if (visibility.all) length = longest;
    }
    read({first, std::min(first + length, longest), peers(first, step, 0)});
  }
  if (visibility.any) scope.complete_step();
}

void SharedMemory::expose_in_one_step(CallScope& scope, Bytes mine, size_t longest, Read read) {
  const uint64_t step = scope.step();
  const bool in_slot = longest <= Slot::capacity;
  put(in_slot ? scope.slot().bytes : grow(rank_slots_[rank_].staged[step % 2], mine.size()), mine.data(), mine.size());
  scope.complete_step();
  if (longest == 0) return;
  for (int r = 0; r < size_; ++r) peers_[static_cast<size_t>(r)] = in_slot ? slot(r, step).bytes : staged(r, step);
  peers_[static_cast<size_t>(rank_)] = mine.data();  // rather than the copy, which has just been written
  read({0, longest, peers_});
}

// For each part, every rank stages the bytes that others fold, folds its slice, and copies the slices of all ranks. It
// copies the slices of a part after the next step, so there is one step more than there are parts. Bytes that are read
// in place are not staged, but still processed by parts, because a slice is copied fastest while it is in the cache of
// the rank that folded it. Only one rank reads a given slice of the inputs, so it may write the result over its own
// input. A common result needs no copies: it is complete when all ranks have folded, which they report in the step
// after the last part.
void SharedMemory::reduce(const Call& call, Bytes mine, std::span<std::byte> result, const Reduction& reduction) {
  const bool on_card = call.device != Device::cpu && shows_device_memory();
  const bool common = size_ > 1 && arena_->is_common(result.data());
  if (!reduction.to_all || (mine.size() <= few_bytes && !on_card && !common))
    return Transport::reduce(call, mine, result, reduction);
  CallScope scope(*this, call, mine.size() + common);  // the ranks must also agree whether the result is common
  publish(scope, mine, result);
  size_t length = part_;
  const auto n = static_cast<size_t>(size_);
  bool in_place = false, more = true;
  for (Range part{0, 0}, before{0, 0}; more; before = part) {
    const uint64_t step = scope.step();
    part = {before.last, std::min(before.last + length, mine.size())};
    more = part.size() > 0;
    if (!visible(mine)) stage(step, mine, part.first, part.last);
    scope.complete_step();
    if (part.first == 0) {
      const Visibility visibility = locate_buffers(step);
      in_place = common || (visibility.all && visibility.results);
      if (visibility.all && in_place) {
        length = on_card || common ? mine.size() : part_in_place;
        part.last = std::min(length, mine.size());
      }
      inputs_[static_cast<size_t>(rank_)] = mine.data();  // this rank's own slice is not staged
    }
    const auto place = [&](int r, uint64_t at_step, Range all, size_t first) {
      return in_place ? results_[static_cast<size_t>(r)] + first : folded(r, at_step) + (first - all.first);
    };
    for (int r = 0; r < size_ && !common; ++r)
      if (const Range theirs = before.slice(static_cast<size_t>(r), n); theirs.size() && !(in_place && r == rank_))
        copy(on_card ? call.device : Device::cpu, result.data() + theirs.first,
             place(r, step - 1, before, theirs.first), theirs.size());
    if (const Range own = part.slice(static_cast<size_t>(rank_), n); own.size())
      reduction.fold.write({own.first, own.last, peers(own.first, step, own.first - part.first)},
                           in_place ? result.data() + own.first
                                    : grow(rank_slots_[rank_].folded[step % 2], std::min(part_, mine.size())) +
                                          (own.first - part.first));
  }
  if (in_place && !common) scope.complete_step();
}

// Stages all bytes but the slice that this rank folds itself.
void SharedMemory::stage(uint64_t step, Bytes mine, size_t first, size_t last) {
  const Range own = Range{first, last}.slice(static_cast<size_t>(rank_), static_cast<size_t>(size_));
  std::byte* place = grow(rank_slots_[rank_].staged[step % 2], std::min(part_, mine.size()));
  put(place, mine.data() + first, own.first - first);
  put(place + (own.last - first), mine.data() + own.last, last - own.last);
}

}  // namespace weft
