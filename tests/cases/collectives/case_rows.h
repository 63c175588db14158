// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rows that each rank holds in the cases of collectives: some ranks have more than others, some have none.
#include "weft/collectives/verbs.h"
#include "weft/engine/tensor/shape.h"

namespace weft::case_rows {

inline std::vector<Shape> matrix(int, int) { return {{2, 3}}; }
inline std::vector<Shape> blocks(int, int ranks) { return {{2 * ranks, 3}}; }

// In any group of two or more ranks, one rank has no rows.
inline int64_t uneven(int rank) { return (rank + 2) % 3; }
inline Rows uneven_of(int ranks) {
  Rows rows;
  for (int r = 0; r < ranks; ++r) rows.push_back(uneven(r));
  return rows;
}
inline Counts uneven_counts(int ranks) {
  Counts counts(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r)
    for (int s = 0; s < ranks; ++s) counts[static_cast<size_t>(r)].push_back((r + 2 * s) % 3);
  return counts;
}

// Rank 0 reads no rank, the others read their parent, so some values are read twice.
inline Sources tree(int ranks) {
  Sources source;
  for (int r = 0; r < ranks; ++r) source.push_back(r == 0 ? -1 : (r - 1) / 2);
  return source;
}

}  // namespace weft::case_rows
