// SPDX-License-Identifier: Apache-2.0
#pragma once
// A contiguous part of a parameter that is wrong, while the rest is right: a bucket, a shard, some rows.
#include "tools/weft/explain/given.h"

namespace weft::verify {

struct Range {
  Eigen::Index begin, end;
  Eigen::Index size() const { return end - begin; }
};
// "rows 3 to 5", "element 7"; `columns`: elements of a row.
std::string range_text(const Range& range, Eigen::Index columns);
bool of_whole_rows(const Range& range, Eigen::Index columns);

// The elements between the first and the last that are wrong on any rank. Only where each rank has the whole gradient.
std::optional<Range> wrong_range(const Given& given);

// What the part alone would be explained by.
std::vector<Described> by_part(const Given& given);

}  // namespace weft::verify
