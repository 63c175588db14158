// SPDX-License-Identifier: Apache-2.0
// Reductions by messages.
#include <algorithm>
#include <optional>

#include "weft/collectives/fold.h"
#include "weft/collectives/transports/mpi/mpi_group.h"
#include "weft/collectives/transports/mpi/mpi_reduce.h"

namespace weft {

bool MpiGroup::reduces_in_any_order(const Call& call, size_t bytes) const {
  return call.verb == Verb::all_reduce && state_->wire.threads() == 1 && mpi_reduces(call, bytes);
}

// Where slices are not equal, a rank with a short one would receive much for others, so these are no shares. Sums of
// bf16 are in f32 after the first swap, so in halves they would take more bytes than slices do.
Way MpiGroup::way_of(size_t bytes, const Reduction& reduction, const Readers* readers) const {
  const bool of_shares = of_one_size(reduction.slices);
  if (readers) return readers->add() ? way_of(Movement::some_sums, bytes) : Way::directly;
  if (!reduction.to_all && !of_shares) return Way::directly;
  const Way way = way_of(of_shares ? Movement::shares : Movement::sum, bytes);
  if (way == Way::by_halving && reduction.fold.between_stages() != reduction.fold.dtype)
    return of_shares ? Way::directly : Way::in_slices;
  return way;
}

void MpiGroup::reduce(const Call& requested, Bytes mine, std::span<std::byte> result, const Reduction& reduction) {
  const size_t bytes = std::max(mine.size(), result.size());
  const bool in_any_order = reduction.in_any_order && reduces_in_any_order(requested, bytes);
  std::optional<Readers> readers;
  if (!reduction.to_all && reduction.slices.empty()) readers.emplace(size(), reduction.reads);
  const Way way = way_of(bytes, reduction, readers ? &*readers : nullptr);
  if (!in_any_order && way != Way::in_slices && way != Way::by_halving)
    return Transport::reduce(requested, mine, result, reduction);
  Call call = requested;
  call.sequence = ++state_->calls;
  begin(call);
  Agreement(*this, call, false, mine, bytes).sizes();
  if (in_any_order) {
    Wire::Requests reducing{reduce_by_mpi(state_->wire.comm(), call, mine, result)};
    finish(reducing);
    reduction.fold.divide(result.data(), static_cast<int64_t>(result.size() / size_of(call.dtype)));
  } else if (way == Way::by_halving) {
    std::vector<Range> slices(reduction.slices.begin(), reduction.slices.end());
    for (int r = 0; r < size() && reduction.to_all; ++r)
      slices.push_back(Range{0, bytes}.slice(static_cast<size_t>(r), static_cast<size_t>(size())));
    carry_out(halving_steps(taker(), slices, reduction.fold, reduction.to_all), mine, result, nullptr);
  } else {
    if (!readers) readers.emplace(size());
    carry_out(sum_steps(taker(), bytes, std::move(*readers), reduction.fold, reduction.to_all), mine, result, nullptr);
  }
  end();
}

}  // namespace weft
