#include "apps/shared/metrics.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/error.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

double now() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(since_1970).count()) / 1000;
}

// A step is one that there can be, so a number such as 1e300 is none.
bool is_row(const Json& json) {
  if (!json.is_object() || !json.contains("step") || !json.contains("time")) return false;
  return json["step"].is_number_unsigned() && json["step"] <= std::numeric_limits<int64_t>::max() &&
         json["time"].is_number();
}

std::string csv(double value) {
  return std::isfinite(value) ? Json(value).dump() : std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
}

}  // namespace

Metrics::Metrics(const std::filesystem::path& folder, std::vector<std::string> names, int64_t resumed_step)
    : names_(std::move(names)) {
  const uint64_t kept = resumed_step > 0 ? read(folder / "metrics.jsonl", resumed_step) : 0;
  lines_ = std::make_unique<AppendedFile>(folder / "metrics.jsonl", kept);
  table_ = std::make_unique<AppendedFile>(folder / "metrics.csv");
  events_ = std::make_unique<EventFile>(folder / "events.out.tfevents.weft", rows_.empty() ? now() : rows_[0].time);
  std::string header = "step,time";
  for (const std::string& name : names_) header += "," + name;
  table_->append(header + "\n");
  for (const Row& row : rows_) write_others(row);
}

Metrics::~Metrics() = default;

size_t Metrics::column(const std::string& name) const {
  const auto place = std::find(names_.begin(), names_.end(), name);
  require(place != names_.end(), "metrics: '", name, "' is not among the names that were announced");
  return static_cast<size_t>(place - names_.begin());
}

// Rows up to a step, and how many bytes of the file they are. A line that is none ends them, such as one that a killed
// process left half written.
uint64_t Metrics::read(const std::filesystem::path& file, int64_t last_step) {
  uint64_t bytes = 0;
  std::ifstream stream(file, std::ios::binary);
  for (std::string line; std::getline(stream, line) && !stream.eof();) {
    const Json json = Json::parse(line, nullptr, false);
    if (!is_row(json) || json["step"].get<int64_t>() > last_step) break;
    if (!rows_.empty() && json["step"].get<int64_t>() < rows_.back().step) break;
    Row row{json["step"].get<int64_t>(), json["time"].get<double>(), std::vector<std::optional<double>>(names_.size())};
    for (size_t i = 0; i < names_.size(); ++i)
      if (const auto value = json.find(names_[i]); value != json.end())
        row.values[i] = value->is_number() ? value->get<double>() : std::nan("");
    rows_.push_back(std::move(row));
    bytes += line.size() + 1;
  }
  return bytes;
}

void Metrics::add(int64_t step, const std::vector<Value>& values) {
  require(rows_.empty() || rows_.back().step <= step, "metrics: step ", step, " after step ",
          rows_.empty() ? 0 : rows_.back().step);
  Row row{step, now(), std::vector<std::optional<double>>(names_.size())};
  Json json = {{"step", step}, {"time", row.time}};
  for (const auto& [name, value] : values) {
    row.values[column(name)] = value;
    json[name] = value;  // what is not finite becomes null, which is all that JSON has for it
  }
  lines_->append(json.dump() + "\n");
  write_others(row);
  rows_.push_back(std::move(row));
}

void Metrics::write_others(const Row& row) {
  std::string line = std::to_string(row.step) + "," + Json(row.time).dump();
  for (size_t i = 0; i < names_.size(); ++i) {
    line += ",";
    if (!row.values[i]) continue;
    line += csv(*row.values[i]);
    events_->add(row.time, row.step, names_[i], *row.values[i]);
  }
  table_->append(line + "\n");
}

Curve Metrics::curve(const std::string& name) const {
  const size_t i = column(name);
  Curve curve;
  for (const Row& row : rows_)
    if (row.values[i]) curve.push_back({static_cast<double>(row.step), *row.values[i]});
  return curve;
}

std::optional<double> Metrics::last(const std::string& name) const {
  const size_t i = column(name);
  for (auto row = rows_.rbegin(); row != rows_.rend(); ++row)
    if (row->values[i]) return row->values[i];
  return std::nullopt;
}

}  // namespace weft
