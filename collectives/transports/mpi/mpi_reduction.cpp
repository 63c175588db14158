// SPDX-License-Identifier: Apache-2.0
// Reductions by messages. Every rank folds one slice of all ranks' bytes, so that no rank receives much more than twice
// the bytes of the result.
#include <algorithm>
#include <optional>

#include "weft/collectives/fold.h"
#include "weft/collectives/transports/mpi/mpi_group.h"
#include "weft/collectives/transports/mpi/mpi_reduce.h"

namespace weft {
namespace {

// The slices of a part that the ranks fold.
std::vector<Transport::Range> slices_of(const Transport::Range& part, size_t ranks) {
  std::vector<Transport::Range> slices;
  for (size_t r = 0; r < ranks; ++r) slices.push_back(part.slice(r, ranks));
  return slices;
}

}  // namespace

bool MpiGroup::reduces_in_any_order(const Call& call, size_t bytes) const {
  return call.verb == Verb::all_reduce && state_->wire.threads() == 1 && mpi_reduces(call, bytes);
}

// Where slices are not equal, a rank with a short one would receive much for others, so these are no shares. Sums of
// bf16 are in f32 after the first swap, so in halves they would take more bytes than slices do.
Way MpiGroup::way_of(size_t bytes, const Reduction& reduction, const Readers* readers) const {
  const bool of_shares = of_one_size(reduction.slices);
  if (readers) return readers->add() ? way_of(Movement::sums, bytes) : Way::directly;
  if (!reduction.to_all && !of_shares) return Way::directly;
  const Way way = way_of(of_shares ? Movement::shares : Movement::sum, bytes);
  if (way == Way::in_halves && reduction.fold.between_stages() != reduction.fold.dtype)
    return of_shares ? Way::directly : Way::in_slices;
  return way;
}

void MpiGroup::reduce(const Call& requested, Bytes mine, std::span<std::byte> result, const Reduction& reduction) {
  const size_t bytes = std::max(mine.size(), result.size());
  const bool in_any_order = reduction.in_any_order && reduces_in_any_order(requested, bytes);
  std::optional<Readers> readers;
  if (!reduction.to_all && reduction.slices.empty()) readers.emplace(size(), reduction);
  const Way way = way_of(bytes, reduction, readers ? &*readers : nullptr);
  if (!in_any_order && way != Way::in_slices && way != Way::in_halves)
    return Transport::reduce(requested, mine, result, reduction);
  Call call = requested;
  call.sequence = ++state_->calls;
  begin(call);
  Agreement(*this, call, false, mine, bytes).sizes();
  if (in_any_order) {
    Wire::Requests reducing{reduce_by_mpi(state_->wire.comm(), call, mine, result)};
    finish(reducing);
    reduction.fold.divide(result.data(), static_cast<int64_t>(result.size() / size_of(call.dtype)));
  } else if (way == Way::in_halves) {
    sum_in_halves(mine, result, reduction);
  } else if (readers) {
    fold_for_each(mine, result, *readers, reduction.fold);
  } else {
    fold_for_all(mine, result, reduction.fold);
  }
  end();
}

// For each part, every rank receives its slice from all ranks and folds these into the result. Then all ranks gather
// the folded slices. The slices of other ranks have left `mine` by then, so `result` may be the same memory. The links
// stay busy: while a part is folded and gathered, the slices of the next one move.
void MpiGroup::fold_for_all(Bytes mine, std::span<std::byte> result, const Fold& fold) {
  const auto n = static_cast<size_t>(size()), me = static_cast<size_t>(rank());
  const size_t part = n * part_bytes();
  const auto slices_at = [&](size_t first) { return slices_of(Range{0, mine.size()}.piece(first, part), n); };
  const auto begin_part = [&](size_t first) -> Swap& {
    const std::vector<Range> slices = slices_at(first), own(n, slices[me]);
    return begin_swap(first / part, mine, {own, slices}, 0, part_bytes());
  };
  std::vector<int> counts(n), places(n);
  Wire::Requests gathering;
  Swap* next = &begin_part(0);
  for (size_t first = 0; first < mine.size(); first += part) {
    Swap& swap = *next;
    next = &begin_part(first + part);
    finish(swap.requests);
    const std::vector<Range> slices = slices_at(first);
    if (const Range own = slices[me]; own.size())
      fold.write({own.first, own.last, swap.peers}, result.data() + own.first);
    finish(gathering);  // which reads `counts` and `places`
    for (size_t r = 0; r < n; ++r) {
      counts[r] = static_cast<int>(slices[r].size());
      places[r] = static_cast<int>(slices[r].first - first);
    }
    state_->wire.gather(result.data() + first + places[me], result.data() + first, counts, places, gather_tag,
                        gathering);
  }
  finish(gathering);
}

// A rank receives its slice of all tensors that are read, folds these for every reader, and sends each its fold,
// 2 (n-1)/n tensors in all. Every fold has all its terms, so its order and its bits are the same.
void MpiGroup::fold_for_each(Bytes mine, std::span<std::byte> result, const Readers& readers, const Fold& own_fold) {
  const auto n = static_cast<size_t>(size()), me = static_cast<size_t>(rank());
  const auto reads = [&](size_t r) { return readers.fold_of[r] >= 0; };
  std::vector<std::byte> folded;
  for (size_t first = 0; first < result.size(); first += n * part_bytes()) {
    const std::vector<Range> slices = slices_of({first, std::min(first + n * part_bytes(), result.size())}, n);
    const Range own = slices[me];
    std::vector<Range> of_peers(n), by_peers(n);
    for (size_t r = 0; r < n; ++r) {
      if (readers.is_read[r]) of_peers[r] = own;
      if (readers.is_read[me]) by_peers[r] = slices[r];
    }
    Swap& terms = begin_swap(0, mine, {of_peers, by_peers}, 0, part_bytes());
    finish(terms.requests);
    folded.resize(readers.folds.size() * own.size());  // one behind the other
    for (size_t i = 0; i < readers.folds.size() && own.size(); ++i)
      readers.fold(i, own_fold).write({own.first, own.last, terms.peers}, folded.data() + i * own.size());
    for (size_t r = 0; r < n; ++r) {
      const auto folds_of = [&](size_t reader, Range slice) {
        const auto i = static_cast<size_t>(readers.fold_of[reader]);
        return reads(reader) ? Range{i * slice.size(), (i + 1) * slice.size()} : Range();
      };
      of_peers[r] = folds_of(me, slices[r]);
      by_peers[r] = folds_of(r, own);
    }
    Swap& results = begin_swap(1, folded, {of_peers, by_peers}, 0, part_bytes());
    finish(results.requests);
    if (!reads(me)) continue;
    for (size_t r = 0; r < n; ++r) std::copy_n(results.peers[r], slices[r].size(), result.data() + slices[r].first);
  }
}

}  // namespace weft
