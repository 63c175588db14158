// SPDX-License-Identifier: Apache-2.0
// Reductions by messages. Every rank folds one slice of all ranks' bytes, so that no rank receives much more than twice
// the bytes of the result.
#include <algorithm>

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

// For each part, every rank receives its slice from all ranks and folds these into the result. Then all ranks gather
// the folded slices. The slices of other ranks have left `mine` by then, so `result` may be the same memory. The links
// stay busy: while a part is folded and gathered, the slices of the next one move.
void MpiGroup::combine(const Call& requested, Bytes mine, std::span<std::byte> result, Fold fold) {
  const auto n = static_cast<size_t>(size()), me = static_cast<size_t>(rank());
  if (adds_everything(mine.size())) return Transport::combine(requested, mine, result, fold);
  Call call = requested;
  call.sequence = ++state_->calls;
  begin(call);
  Agreement(*this, call, false, mine, mine.size()).sizes();
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
    if (const Range own = slices[me]; own.size()) fold({own.first, own.last, swap.peers}, result.data() + own.first);
    finish(gathering);  // which reads `counts` and `places`
    for (size_t r = 0; r < n; ++r) {
      counts[r] = static_cast<int>(slices[r].size());
      places[r] = static_cast<int>(slices[r].first - first);
    }
    state_->wire.gather(result.data() + first + places[me], result.data() + first, counts, places, gather_tag,
                        gathering);
  }
  finish(gathering);
  end();
}

// In an exchange a rank receives the tensor of every rank that it reads: the root of a reduce, and the last rank of a
// scan, those of all others. Here it receives its slice of all tensors that are read, folds these for every reader, and
// sends each its fold, 2 (n-1)/n tensors in all. Every fold has all its terms, so its order and its bits are the same.
bool MpiGroup::combine_for_each(const Call& requested, Bytes mine, std::span<std::byte> result, const Folds& folds) {
  const auto n = static_cast<size_t>(size()), me = static_cast<size_t>(rank());
  std::vector<char> reads(n), is_read(n);
  int most_sources = 0;  // of any reader, besides itself
  for (size_t reader = 0; reader < n; ++reader) {
    int sources = 0;
    for (size_t source = 0; source < n; ++source) {
      if (!folds.reads(static_cast<int>(reader), static_cast<int>(source))) continue;
      reads[reader] = is_read[source] = true;
      sources += reader != source;
    }
    most_sources = std::max(most_sources, sources);
  }
  if (most_sources < 2 || result.size() <= 256) return false;
  Call call = requested;
  call.sequence = ++state_->calls;
  begin(call);
  Agreement(*this, call, false, mine, result.size()).sizes();
  std::vector<std::byte> folded;
  for (size_t first = 0; first < result.size(); first += n * part_bytes()) {
    const std::vector<Range> slices = slices_of({first, std::min(first + n * part_bytes(), result.size())}, n);
    const Range own = slices[me];
    std::vector<Range> of_peers(n), by_peers(n);
    for (size_t r = 0; r < n; ++r) {
      if (is_read[r]) of_peers[r] = own;
      if (is_read[me]) by_peers[r] = slices[r];
    }
    Swap& terms = begin_swap(0, mine, {of_peers, by_peers}, 0, part_bytes());
    finish(terms.requests);
    folded.resize(n * own.size());  // the folds for all readers, one behind the other
    for (size_t r = 0; r < n; ++r) {
      of_peers[r] = by_peers[r] = {};
      if (reads[me]) of_peers[r] = {me * slices[r].size(), (me + 1) * slices[r].size()};
      if (!reads[r]) continue;
      by_peers[r] = {r * own.size(), (r + 1) * own.size()};
      if (own.size())
        folds.write(static_cast<int>(r), {own.first, own.last, terms.peers}, folded.data() + r * own.size());
    }
    Swap& results = begin_swap(1, folded, {of_peers, by_peers}, 0, part_bytes());
    finish(results.requests);
    if (!reads[me]) continue;
    for (size_t r = 0; r < n; ++r) std::copy_n(results.peers[r], slices[r].size(), result.data() + slices[r].first);
  }
  end();
  return true;
}

bool MpiGroup::combine_in_any_order(const Call& requested, Bytes mine, std::span<std::byte> result) {
  if (requested.verb != Verb::all_reduce || state_->wire.threads() > 1 || !mpi_reduces(requested, mine.size()))
    return false;
  Call call = requested;
  call.sequence = ++state_->calls;
  begin(call);
  Agreement(*this, call, false, mine, mine.size()).sizes();
  Wire::Requests reducing{reduce_by_mpi(state_->wire.comm(), call, mine, result)};
  finish(reducing);
  end();
  return true;
}

}  // namespace weft
