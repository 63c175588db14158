// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/metrics_rows.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "weft/data/files/json_text.h"
#include "weft/data/idx.h"  // MalformedInput

namespace weft {
namespace {

MetricsRow read_row(JsonText& json, const std::vector<std::string>& names) {
  MetricsRow row;
  bool has_step = false, has_time = false;
  json.object([&](const std::string& key) {
    if (key == "step") {
      const uint64_t step = json.number();
      if (std::exchange(has_step, true) || !std::in_range<int64_t>(step))
        json.refuse("no step that there can be, or a second one");
      row.step = static_cast<int64_t>(step);
    } else if (key == "time") {
      row.time = json.real();
      if (std::exchange(has_time, true) || std::isnan(row.time)) json.refuse("no time, or a second one");
    } else {
      const double value = json.real();
      const auto column = static_cast<size_t>(std::find(names.begin(), names.end(), key) - names.begin());
      if (row.at(column)) json.refuse_second(key);
      if (column < names.size()) row.cells.push_back({column, value});
    }
  });
  json.end();
  if (!has_step || !has_time) json.refuse("a row lacks its step or its time");
  return row;
}

}  // namespace

std::optional<double> MetricsRow::at(size_t column) const {
  const auto found = std::find_if(cells.begin(), cells.end(), [&](const Cell& cell) { return cell.column == column; });
  return found == cells.end() ? std::nullopt : std::optional(found->value);
}

ReadRows read_rows(std::string_view text, const std::vector<std::string>& names, int64_t last_step) {
  ReadRows read;
  try {
    for (size_t end = 0; (end = text.find('\n', read.bytes)) != std::string_view::npos; read.bytes = end + 1) {
      JsonText json(text.substr(read.bytes, end - read.bytes), "metrics.jsonl", read.bytes);
      MetricsRow row = read_row(json, names);
      if (row.step > last_step) break;
      if (!read.rows.empty() && row.step < read.rows.back().step) json.refuse("a step that goes back");
      read.rows.push_back(std::move(row));
    }
  } catch (const MalformedInput& error) {
    read.damage = error.what();
  }
  return read;
}

}  // namespace weft
