// SPDX-License-Identifier: Apache-2.0
#pragma once
// The numbers of a flat tensor that is computed a range at a time, and so need not fit into memory.
#include <cstdint>
#include <memory>
#include <vector>

#include "tools/weft/truth/sample.h"

namespace weft::verify {

class LazyNumbers {
 public:
  virtual ~LazyNumbers() = default;
  // Writes `count` numbers from `first` on to `values`; and to `variances`, unless it is null, how far off rounding
  // makes each.
  virtual void read(int64_t first, int64_t count, double* values, double* variances) const = 0;
};
using Lazy = std::shared_ptr<const LazyNumbers>;

Lazy lazy(Matrix values);  // without rounding
// factor (a + b + ...) / divisor. The last range is kept, since several ranks may have the same sum.
Lazy lazy_sum(std::vector<Lazy> terms, double factor = 1, double divisor = 1);

// Runs of equal length in `source`, which begin `stride` apart, the first at `begin`.
struct Runs {
  Lazy source;
  int64_t length, stride, begin;
};
// One run of each in turn, over and over.
Lazy alternating(std::vector<Runs> runs);

}  // namespace weft::verify
