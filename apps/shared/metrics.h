#pragma once
// What is measured during a run, by step: in memory for the report, and in three files of the run's folder that are up
// to date after every step: metrics.jsonl, metrics.csv and a file for TensorBoard. A run that goes on from a step
// forgets what was measured behind it, so that nothing is there twice.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/shared/event_file.h"
#include "apps/shared/metrics_rows.h"

namespace weft {

struct Value {
  std::string name;
  double value;
};

struct Point {
  double x, y;
};
using Curve = std::vector<Point>;

class Metrics {
 public:
  // `names`: all there may be, in the order of the columns. 0 begins anew.
  Metrics(const std::filesystem::path& folder, std::vector<std::string> names, int64_t resumed_step = 0);
  ~Metrics();

  void add(int64_t step, const std::vector<Value>& values);  // any of the names; steps do not go back
  Curve curve(const std::string& name) const;                // x is the step
  std::optional<double> last(const std::string& name) const;
  // What is wrong with the file that was to be gone on with, from where nothing is taken over; empty if nothing is.
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
