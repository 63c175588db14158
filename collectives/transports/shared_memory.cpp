#include "collectives/transports/shared_memory.h"

#include <algorithm>

#include "collectives/transports/board.h"
#include "engine/backend.h"

namespace weft {
namespace {

// Up to here a second step costs more than a copy does, and folding everything oneself less than waiting for a slice.
constexpr size_t few_bytes = size_t{16} << 10;
constexpr size_t part_in_place = size_t{1} << 20;

struct Range {
  size_t first, last;
  size_t size() const { return last - first; }
};

// The r-th of n slices of [first, last), at whole cache lines.
Range slice(Range whole, int r, int n) {
  const size_t each = (whole.size() / static_cast<size_t>(n) + 63) / 64 * 64;
  const auto cut = [&](int i) { return whole.first + std::min(each * static_cast<size_t>(i), whole.size()); };
  return {cut(r), r + 1 == n ? whole.last : cut(r + 1)};
}

// On a card, complete when it returns.
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
  return sight_ == Sight::everything || bytes.empty() || job_->contains(bytes.data());
}

void SharedMemory::show(Turn& turn, Bytes mine, Bytes result) const {
  const Shown shown{visible(mine), visible(result), job_->offset_of(mine.data()), job_->offset_of(result.data())};
  std::memcpy(turn.slot().bytes, &shown, sizeof shown);
}

SharedMemory::Sights SharedMemory::look(uint64_t step) {
  Sights sights{false, true, true};
  for (int r = 0; r < size_; ++r) {
    Shown shown;
    std::memcpy(&shown, slot(r, step).bytes, sizeof shown);
    places_[static_cast<size_t>(r)] = shown.in_place ? job_->address(shown.bytes) : nullptr;
    results_[static_cast<size_t>(r)] = job_->address(shown.result);
    sights = {sights.any || shown.in_place, sights.all && shown.in_place, sights.results && shown.result_in_place};
  }
  return sights;
}

std::span<const std::byte* const> SharedMemory::peers(size_t first, uint64_t step, size_t skipped) {
  for (int r = 0; r < size_; ++r) {
    const std::byte* place = places_[static_cast<size_t>(r)];
    peers_[static_cast<size_t>(r)] = place ? place + first : staged(r, step) + skipped;
  }
  return peers_;
}

void SharedMemory::meet(const Call& call, Bytes mine, size_t longest, Read read) {
  Turn turn(*this, call, longest);
  // A card's memory is shown in place or not at all.
  const bool on_card = call.device != Device::cpu && shows_device_memory() && longest > 0;
  if (longest <= few_bytes && !on_card) return meet_in_one_step(turn, mine, longest, read);
  show(turn, mine, {});
  size_t length = part_;
  Sights sights{};
  for (size_t first = 0; first < longest; first += length) {
    const uint64_t step = turn.step();
    if (!visible(mine) && first < mine.size())
      put(grown(seats_[rank_].staged[step % 2], std::min(part_, mine.size())), mine.data() + first,
          std::min(part_, mine.size() - first));
    turn.take_step();
    if (first == 0) {
      sights = look(step);
      if (sights.all) length = longest;
    }
    read({first, std::min(first + length, longest), peers(first, step, 0)});
  }
  if (sights.any) turn.take_step();
}

void SharedMemory::meet_in_one_step(Turn& turn, Bytes mine, size_t longest, Read read) {
  const uint64_t step = turn.step();
  const bool in_slot = longest <= Slot::capacity;
  put(in_slot ? turn.slot().bytes : grown(seats_[rank_].staged[step % 2], mine.size()), mine.data(), mine.size());
  turn.take_step();
  if (longest == 0) return;
  for (int r = 0; r < size_; ++r) peers_[static_cast<size_t>(r)] = in_slot ? slot(r, step).bytes : staged(r, step);
  peers_[static_cast<size_t>(rank_)] = mine.data();  // not by way of what was only just written for the others
  read({0, longest, peers_});
}

// Per part: everybody stages what others fold, folds its slice, and copies all slices. The copying of a part waits for
// the next step, so there is one step per part and one more. What is seen in place is not staged, but still goes part
// by part, because a slice is copied fastest while it is in its owner's cache. Every slice of everybody's bytes is read
// by one rank only, so that one may put the outcome in the place of its own. A result that is everybody's needs no
// copies: it is complete when all slices are, and the step of the empty part after the last says so.
void SharedMemory::combine(const Call& call, Bytes mine, std::span<std::byte> result, Fold fold) {
  const bool on_card = call.device != Device::cpu && shows_device_memory();
  const bool common = size_ > 1 && arena_->is_common(result.data());
  if (mine.size() <= few_bytes && !on_card && !common) return Transport::combine(call, mine, result, fold);
  Turn turn(*this, call, mine.size() + common);  // also to agree on
  show(turn, mine, result);
  size_t length = part_;
  bool in_place = false, more = true;
  for (Range part{0, 0}, before{0, 0}; more; before = part) {
    const uint64_t step = turn.step();
    part = {before.last, std::min(before.last + length, mine.size())};
    more = part.size() > 0;
    if (!visible(mine)) stage(step, mine, part.first, part.last);
    turn.take_step();
    if (part.first == 0) {
      const Sights sights = look(step);
      in_place = common || (sights.all && sights.results);
      if (sights.all && in_place) {
        length = on_card || common ? mine.size() : part_in_place;
        part.last = std::min(length, mine.size());
      }
      places_[static_cast<size_t>(rank_)] = mine.data();  // my own slice is not staged
    }
    const auto place = [&](int r, uint64_t at_step, Range all, size_t first) {
      return in_place ? results_[static_cast<size_t>(r)] + first : folded(r, at_step) + (first - all.first);
    };
    for (int r = 0; r < size_ && !common; ++r)
      if (const Range theirs = slice(before, r, size_); theirs.size() && !(in_place && r == rank_))
        copy(on_card ? call.device : Device::cpu, result.data() + theirs.first,
             place(r, step - 1, before, theirs.first), theirs.size());
    if (const Range own = slice(part, rank_, size_); own.size())
      fold({own.first, own.last, peers(own.first, step, own.first - part.first)},
           in_place ? result.data() + own.first
                    : grown(seats_[rank_].folded[step % 2], std::min(part_, mine.size())) + (own.first - part.first));
  }
  if (in_place && !common) turn.take_step();
}

// All but the slice that nobody else folds.
void SharedMemory::stage(uint64_t step, Bytes mine, size_t first, size_t last) {
  const Range own = slice({first, last}, rank_, size_);
  std::byte* place = grown(seats_[rank_].staged[step % 2], std::min(part_, mine.size()));
  put(place, mine.data() + first, own.first - first);
  put(place + (own.last - first), mine.data() + own.last, last - own.last);
}

}  // namespace weft
