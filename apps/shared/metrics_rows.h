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
  size_t bytes = 0;    // how much of the text they are
  std::string damage;  // what is wrong with the line that ends them, if anything is
};

// Those up to a step; columns are the places of `names`, and other names are passed over. A line that is no row, or
// goes back, ends them; half a line at the end is what a killed process leaves, and no damage.
ReadRows read_rows(std::string_view text, const std::vector<std::string>& names, int64_t last_step);

}  // namespace weft
