// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/quantizers/codebook/chosen_rows.h"

#include <algorithm>
#include <numeric>

#include "weft/engine/ops/index.h"
#include "weft/losses/common/division.h"

namespace weft {

// Floyd's algorithm: for each of the last `count` numbers, draws a number up to and including it, and takes the number
// itself if the draw has been taken already.
Rows chosen_numbers(int64_t count, int64_t total, const Random& key) {
  require(count >= 0 && (total > 0 || count == 0), "chosen_numbers: ", count, " of ", total);
  Rows numbers;
  if (count > total) {
    for (int64_t i = 0; i < count; ++i) numbers.push_back(i * total / count);
    return numbers;
  }
  for (int64_t last = total - count; last < total; ++last) {
    const double drawn = uniform_draw<double>(key, static_cast<uint64_t>(last)) * static_cast<double>(last + 1);
    const auto place = std::lower_bound(numbers.begin(), numbers.end(), static_cast<int64_t>(drawn));
    if (place != numbers.end() && *place == static_cast<int64_t>(drawn))
      numbers.push_back(last);  // larger than all others
    else
      numbers.insert(place, static_cast<int64_t>(drawn));
  }
  return numbers;
}

Tensor rows_by_number(const Tensor& mine, const Rows& numbers, Communicator& comm, Site site) {
  const Division division(mine.shape()[0], comm, site);
  require(numbers.empty() || numbers.back() < division.total, "rows_by_number: number ",
          numbers.empty() ? 0 : numbers.back(), " of ", division.total, " rows");
  Rows counts;  // the number of chosen rows on each rank
  int64_t end = 0, before = 0, first = 0;
  for (const int64_t rows : division.rows) {
    end += rows;
    if (static_cast<int>(counts.size()) == comm.rank().value) first = before;
    counts.push_back(std::lower_bound(numbers.begin(), numbers.end(), end) - numbers.begin() - before);
    before += counts.back();
  }
  Tensor own({counts[static_cast<size_t>(comm.rank().value)]}, DType::i64);
  for (int64_t i = 0; i < own.size(); ++i)
    own.mutate<int64_t>()[i] = numbers[static_cast<size_t>(first + i)] - division.first;
  return comm.all_gather_v(gather_rows(mine, own.to(mine.device())).value(), counts, site);
}

}  // namespace weft
