// SPDX-License-Identifier: Apache-2.0
#pragma once
// Different numbers of rows on each rank, and none on one of any two or more.
#include <array>

#include "tests/support/on_ranks.h"

namespace weft {

inline int64_t rows_on(int rank) { return std::array{3, 0, 2, 1, 4}[static_cast<size_t>(rank % 5)]; }
inline Tensor part(int rank, const Shape& row, int use = 0) {
  return data_of(rank, row.with_inserted(0, rows_on(rank)), use);
}
inline Tensor whole(const Communicator& comm, const Shape& row, int use = 0) {
  std::vector<Var> parts;
  for (int r = 0; r < comm.size(); ++r) parts.push_back(part(r, row, use));
  return concat(parts, 0).value();
}
inline Tensor row_of(std::initializer_list<double> values, DType dtype = DType::f64) {
  return Tensor::from({static_cast<int64_t>(values.size())}, values, dtype);
}

}  // namespace weft
