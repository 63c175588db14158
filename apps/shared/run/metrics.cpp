// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/metrics.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "weft/engine/tensor/error.h"
#include "weft/engine/text/file_text.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

double now() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(since_1970).count()) / 1000;
}

std::string csv(double value) {
  return std::isfinite(value) ? Json(value).dump() : std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
}

}  // namespace

Metrics::Metrics(const std::filesystem::path& folder, std::vector<std::string> names, int64_t resumed_step)
    : names_(std::move(names)) {
  ReadRows kept;
  if (resumed_step > 0) kept = read_rows(file_text(folder / "metrics.jsonl"), names_, resumed_step);
  rows_ = std::move(kept.rows);
  damage_ = std::move(kept.damage);
  lines_ = std::make_unique<AppendedFile>(folder / "metrics.jsonl", kept.bytes);
  table_ = std::make_unique<AppendedFile>(folder / "metrics.csv");
  events_ = std::make_unique<EventFile>(folder / "events.out.tfevents.weft", rows_.empty() ? now() : rows_[0].time);
  std::string header = "step,time";
  for (const std::string& name : names_) header += "," + name;
  table_->append(header + "\n");
  for (const MetricsRow& row : rows_) write_others(row);
}

Metrics::~Metrics() = default;

size_t Metrics::column(const std::string& name) const {
  const auto place = std::find(names_.begin(), names_.end(), name);
  require(place != names_.end(), "metrics: '", name, "' is not among the names that were announced");
  return static_cast<size_t>(place - names_.begin());
}

void Metrics::add(int64_t step, const std::vector<Value>& values) {
  require(rows_.empty() || rows_.back().step <= step, "metrics: step ", step, " after step ",
          rows_.empty() ? 0 : rows_.back().step);
  MetricsRow row{step, now(), {}};
  Json json = {{"step", step}, {"time", row.time}};
  for (const auto& [name, value] : values) {
    row.cells.push_back({column(name), value});
    json[name] = value;  // JSON has no infinities and no NaN: they become null
  }
  lines_->append(json.dump() + "\n");
  write_others(row);
  rows_.push_back(std::move(row));
}

void Metrics::write_others(const MetricsRow& row) {
  std::string line = std::to_string(row.step) + "," + Json(row.time).dump();
  std::vector<Value> values;
  for (size_t i = 0; i < names_.size(); ++i) {
    line += ",";
    const std::optional<double> value = row.at(i);
    if (!value) continue;
    line += csv(*value);
    values.push_back({names_[i], *value});
  }
  table_->append(line + "\n");
  events_->add(row.time, row.step, values);
}

Curve Metrics::curve(const std::string& name) const {
  const size_t i = column(name);
  Curve curve;
  for (const MetricsRow& row : rows_)
    if (const auto value = row.at(i)) curve.push_back({static_cast<double>(row.step), *value});
  return curve;
}

std::optional<double> Metrics::last(const std::string& name) const {
  const size_t i = column(name);
  for (auto row = rows_.rbegin(); row != rows_.rend(); ++row)
    if (const auto value = row->at(i)) return value;
  return std::nullopt;
}

}  // namespace weft
