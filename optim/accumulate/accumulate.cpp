// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/accumulate/accumulate.h"

#include <algorithm>
#include <numeric>

namespace weft {

MicroBatches::MicroBatches(const Rows& mine, Communicator& comm, Site site)
    : rank_(static_cast<size_t>(comm.rank().value)) {
  const std::vector<double> own(mine.begin(), mine.end());
  const Rows counts = comm.rows_of(static_cast<int64_t>(mine.size()), site);
  const Tensor all = comm.all_gather_v(Tensor::from({static_cast<int64_t>(own.size())}, own, DType::i64), counts, site);
  rows_.assign(static_cast<size_t>(std::max<int64_t>(1, *std::max_element(counts.begin(), counts.end()))),
               Rows(counts.size(), 0));
  const int64_t* next = all.data<int64_t>();
  for (size_t r = 0; r < counts.size(); ++r)
    for (size_t i = 0; i < static_cast<size_t>(counts[r]); ++i) {
      require(*next >= 0, "MicroBatches: rank ", r, " has ", *next, " rows in micro-batch ", i);
      rows_[i][r] = *next++;
    }
}

const Rows& MicroBatches::rows(int64_t i) const {
  require(i >= 0 && i < count(), "MicroBatches: there is no micro-batch ", i, " of ", count());
  return rows_[static_cast<size_t>(i)];
}

Rows MicroBatches::rows() const {
  Rows sums(rows_[0].size(), 0);
  for (const Rows& rows : rows_) std::transform(sums.begin(), sums.end(), rows.begin(), sums.begin(), std::plus());
  return sums;
}

int64_t MicroBatches::samples() const {
  const Rows all = rows();
  return std::accumulate(all.begin(), all.end(), int64_t{0});
}

int64_t MicroBatches::before(int64_t i) const {
  int64_t sum = 0;
  for (int64_t j = 0; j < i; ++j) sum += rows(j)[rank_];
  return sum;
}

int64_t MicroBatches::first_sample(int64_t i) const {
  const Rows all = rows();
  return std::accumulate(all.begin(), all.begin() + static_cast<int64_t>(rank_), before(i));
}

Tensor MicroBatches::part(const Tensor& mine, int64_t i) const {
  require(mine.shape().rank() > 0 && mine.shape()[0] == before(count()), "MicroBatches: a tensor ", mine.shape(),
          " for this rank's ", before(count()), " samples");
  const int64_t first = before(i);
  return mine.slice(first, first + rows(i)[rank_]);
}

}  // namespace weft
