// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/runs/print.h"

#include <algorithm>

#include "weft/engine/text/words.h"

namespace weft::runs {
namespace {

std::string steps_of(const RunSummary& run) {
  const auto [step, steps] = std::pair(run.step, run.steps);
  if (!step) return "";
  return grouped(*step) + (steps && *steps != *step ? " of " + grouped(*steps) : "");
}

std::vector<std::string> row_of(const RunSummary& run) {
  constexpr size_t to_the_minute = 16;  // of "2026-11-27 04:16:35"
  return {run.folder.string(), run.begun.substr(0, to_the_minute), run.program, run.data,    run.method, run.encoder,
          steps_of(run),       run.ranks ? text(*run.ranks) : "",  run.state,   run.result()};
}

}  // namespace

std::string text_of(const std::vector<RunSummary>& runs) {
  std::vector<std::vector<std::string>> rows = {
      {"run", "begun", "program", "data", "method", "encoder", "steps", "ranks", "state", "result"}};
  for (const RunSummary& run : runs) rows.push_back(row_of(run));
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string all;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    all += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  for (const RunSummary& run : runs)
    for (const std::string& problem : run.problems) all += (run.folder / "").string() + problem + "\n";
  return all;
}

std::string json_of(const std::vector<RunSummary>& runs) {
  using Json = nlohmann::ordered_json;
  const auto known = [](const auto& value) { return value ? Json(*value) : Json(); };
  const auto words = [](const std::string& value) { return value.empty() ? Json() : Json(value); };
  Json all = Json::array();
  for (const RunSummary& run : runs)
    all.push_back({{"folder", run.folder.string()},
                   {"begun", words(run.begun)},
                   {"program", words(run.program)},
                   {"data", words(run.data)},
                   {"method", words(run.method)},
                   {"encoder", words(run.encoder)},
                   {"step", known(run.step)},
                   {"steps", known(run.steps)},
                   {"ranks", known(run.ranks)},
                   {"state", run.state},
                   {"figures", run.figures},
                   {"problems", run.problems}});
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace weft::runs
