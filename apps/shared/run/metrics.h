// SPDX-License-Identifier: Apache-2.0
#pragma once
// The measurements of a run, by step: in memory for the report, and in three files of the run's folder that are up to
// date after every step: metrics.jsonl, metrics.csv and a file for TensorBoard. A run that resumes from a step drops
// the measurements of later steps, so no step occurs twice.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/shared/run/event_file.h"
#include "apps/shared/run/metrics_rows.h"

namespace weft {

struct Point {
  double x, y;
};
using Curve = std::vector<Point>;

class Metrics {
 public:
  // `names`: all columns, in their order. With `resumed_step` 0 the files are started anew.
  Metrics(const std::filesystem::path& folder, std::vector<std::string> names, int64_t resumed_step = 0);
  ~Metrics();

  void add(int64_t step, const std::vector<Value>& values);  // some of the names; steps never decrease
  Curve curve(const std::string& name) const;                // x is the step
  std::optional<double> last(const std::string& name) const;
  // What is wrong with the file of the resumed run: rows from there on are dropped. Empty if the file is sound.
  const std::string& damage() const { return damage_; }

 private:
  size_t column(const std::string& name) const;
  void write_others(const MetricsRow& row);

  std::vector<std::string> names_;
  std::vector<MetricsRow> rows_;
  std::string damage_;
  std::unique_ptr<AppendedFile> lines_, table_;
  std::unique_ptr<EventFile> events_;
};

}  // namespace weft
