// SPDX-License-Identifier: Apache-2.0
#pragma once
// Batches with different numbers of rows and different distributions on each rank, so that statistics of a rank's own
// rows differ from those of the whole batch.
#include <array>
#include <numeric>

#include "tests/support/on_ranks.h"
#include "weft/collectives/run_ranks.h"
#include "weft/collectives/share.h"

namespace weft {

// Uneven and with an empty rank; all but one on the first rank; all on the last.
inline std::vector<Rows> divisions(int ranks) {
  const auto n = static_cast<size_t>(ranks);
  Rows uneven(n), most_on_first(n, 0), last(n, 0);
  for (size_t r = 0; r < n; ++r) uneven[r] = std::array{3, 0, 2, 1, 4}[r % 5];
  most_on_first[0] = 6;
  most_on_first[n / 2] += 1;
  last.back() = 4;
  return {uneven, most_on_first, last};
}

// Every rank's rows have a different mean and scale.
inline Tensor unlike(int rank, const Shape& row, int64_t count, int use = 0) {
  return affine(data_of(rank, row.with_inserted(0, count), use), 1 + rank, 3.0 * rank - use).value();
}
template <class F> Tensor whole(const Rows& rows, F part) {
  std::vector<Var> parts;
  for (size_t r = 0; r < rows.size(); ++r) parts.push_back(part(static_cast<int>(r), rows[r]));
  return concat(parts, 0).value();
}
inline int64_t before(const Rows& rows, const Communicator& comm) {
  return std::accumulate(rows.begin(), rows.begin() + number(comm), int64_t{0});
}
inline int64_t mine(const Rows& rows, const Communicator& comm) { return rows[static_cast<size_t>(number(comm))]; }

inline double loss_of(const Var& share, Communicator& comm) { return sum_over_ranks(share.value().item(), comm); }

}  // namespace weft
