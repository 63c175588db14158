// SPDX-License-Identifier: Apache-2.0
// Runs side by side, on a page like a run's own report.
#include <algorithm>
#include <functional>
#include <set>
#include <sstream>

#include "apps/shared/report/report.h"
#include "apps/shared/run/metrics_rows.h"
#include "tools/weft/runs/print.h"
#include "weft/engine/tensor/error.h"
#include "weft/engine/text/file_text.h"

namespace weft::runs {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// The folders' own names, or their paths if these are not different.
std::vector<std::string> names_of(const std::vector<RunSummary>& runs) {
  std::vector<std::string> names, paths;
  for (const RunSummary& run : runs) {
    names.push_back((run.folder / "").parent_path().filename().string());
    paths.push_back(run.folder.string());
  }
  return std::set(names.begin(), names.end()).size() == names.size() ? names : paths;
}

void add_new(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

Rows with_header(const char* first, const std::vector<RunSummary>& runs) {
  Rows rows = {{first}};
  for (const std::string& name : names_of(runs)) rows[0].push_back(name);
  return rows;
}

using Cell = std::function<std::string(const RunSummary& run)>;
void add_row(Rows& rows, const std::string& name, const std::vector<RunSummary>& runs, const Cell& cell) {
  rows.push_back({name});
  for (const RunSummary& run : runs) {
    const std::string text = cell(run);
    rows.back().push_back(text.empty() ? "–" : text);
  }
}

Report::Table figures_of(const std::vector<RunSummary>& runs) {
  Rows rows = with_header("figure", runs);
  const auto count = [](const std::optional<int64_t>& n) { return n ? grouped(*n) : ""; };
  add_row(rows, "begun", runs, [](const RunSummary& run) { return run.begun; });
  add_row(rows, "data", runs, [](const RunSummary& run) { return run.data; });
  add_row(rows, "ranks", runs, [&](const RunSummary& run) { return count(run.ranks); });
  add_row(rows, "steps", runs, [&](const RunSummary& run) { return count(run.step); });
  add_row(rows, "state", runs, [](const RunSummary& run) { return run.state; });
  std::vector<std::string> names;
  for (const RunSummary& run : runs)
    for (const auto& each : run.words.items()) add_new(names, each.key());
  for (const std::string& name : names)
    add_row(rows, name, runs, [&](const RunSummary& run) -> std::string {
      const auto found = run.words.find(name);
      return found != run.words.end() && found->is_string() ? found->get<std::string>() : "";
    });
  return {"Figures", rows};
}

Report::Table differing_options_of(const std::vector<RunSummary>& runs) {
  Rows rows = with_header("option", runs);
  std::set<std::string> names;
  for (const RunSummary& run : runs)
    for (const auto& [name, value] : run.options) names.insert(name);
  for (const std::string& name : names) {
    const auto value = [&](const RunSummary& run) {
      const auto found = run.options.find(name);
      return found == run.options.end() ? "" : found->second;
    };
    const auto differs = [&](const RunSummary& run) { return value(run) != value(runs[0]); };
    if (name != "out" && std::any_of(runs.begin(), runs.end(), differs)) add_row(rows, name, runs, value);
  }
  return {rows.size() > 1 ? "Options that differ" : "No option differs", rows};
}

// The curves of a run by the names of what was measured, in the order of its table.
std::vector<Line> curves_of(const RunSummary& run) {
  constexpr size_t most = size_t{256} << 20;
  std::istringstream header(file_text(run.folder / "metrics.csv", size_t{1} << 16));
  std::string first, name;
  std::getline(header, first);
  std::istringstream columns(first);
  std::vector<std::string> names;
  while (std::getline(columns, name, ',')) names.push_back(name);
  names.erase(names.begin(), names.begin() + std::min<std::ptrdiff_t>(2, std::ssize(names)));  // step and time
  std::vector<Line> curves;
  for (const std::string& each : names) curves.push_back({each, {}});
  const std::string text = file_text(run.folder / "metrics.jsonl", most);
  for (const MetricsRow& row : read_rows(text, names, std::numeric_limits<int64_t>::max()).rows)
    for (const auto& [column, value] : row.cells)
      curves[column].points.push_back({static_cast<double>(row.step), value});
  return curves;
}

std::vector<Report::Chart> charts_of(const std::vector<RunSummary>& runs) {
  std::vector<std::vector<Line>> curves;
  std::vector<std::string> measured;
  for (const RunSummary& run : runs) {
    curves.push_back(curves_of(run));
    for (const Line& curve : curves.back())
      if (!curve.points.empty()) add_new(measured, curve.name);
  }
  const std::vector<std::string> names = names_of(runs);
  std::vector<Report::Chart> charts;
  for (const std::string& each : measured) {
    std::vector<Line> lines;  // one for each run, so that a run has the same color everywhere
    for (size_t r = 0; r < runs.size(); ++r) {
      lines.push_back({names[r], {}});
      for (const Line& curve : curves[r])
        if (curve.name == each) lines.back().points = curve.points;
    }
    charts.push_back({each, line_chart(lines, "step")});
  }
  return charts;
}

}  // namespace

std::string page_of(const std::vector<RunSummary>& runs) {
  require(!runs.empty() && runs.size() <= most_on_a_page, "a page has one to ", most_on_a_page, " runs, not ",
          runs.size());
  Report report;
  report.title = "Runs side by side";
  for (const std::string& name : names_of(runs)) report.subtitle += (report.subtitle.empty() ? "" : ", ") + name;
  report.tables = {figures_of(runs), differing_options_of(runs)};
  report.charts = charts_of(runs);
  return html(report);
}

}  // namespace weft::runs
