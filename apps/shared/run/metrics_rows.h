// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rows of metrics.jsonl: one line of JSON for each step at which something was measured.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

struct MetricsRow {
  struct Cell {
    size_t column;
    double value;
  };
  int64_t step = 0;
  double time = 0;          // seconds since 1970
  std::vector<Cell> cells;  // most columns have none in most rows

  std::optional<double> at(size_t column) const;
};

struct ReadRows {
  std::vector<MetricsRow> rows;
  size_t bytes = 0;    // the length of their text
  std::string damage;  // what is wrong with the line after them; empty if nothing
};

// The rows up to a step. Columns are places in `names`; other names are skipped. Reading ends at a line that is not a
// row, or whose step decreases. An incomplete last line is no damage: a killed process leaves it.
ReadRows read_rows(std::string_view text, const std::vector<std::string>& names, int64_t last_step);

}  // namespace weft
