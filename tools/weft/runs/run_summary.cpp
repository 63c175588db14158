// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/runs/run_summary.h"

#include <algorithm>
#include <chrono>
#include <ctime>

#include "apps/shared/launch/config_text.h"
#include "apps/shared/run/results.h"
#include "apps/shared/run/sessions.h"
#include "tools/weft/launch/run_files.h"
#include "weft/data/idx.h"  // MissingInput
#include "weft/engine/text/file_text.h"

namespace weft::runs {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr size_t max_bytes = size_t{1} << 20;  // a longer file is none of a run's

std::string text_of(const Json& of, const char* name) {
  const auto found = of.find(name);
  return found != of.end() && found->is_string() ? found->get<std::string>() : "";
}
std::optional<int64_t> count_of(const Json& of, const char* name) {
  const auto found = of.find(name);
  return found != of.end() && found->is_number_integer() ? std::optional(found->get<int64_t>()) : std::nullopt;
}
Json object_of(const Json& of, const char* name) {
  const auto found = of.find(name);
  return found != of.end() && found->is_object() ? *found : Json::object();
}

std::string time_of(const fs::path& file) {
  std::error_code error;
  const auto written = fs::last_write_time(file, error);
  if (error) return "";
  const auto since = fs::file_time_type::clock::to_sys(written).time_since_epoch();
  const std::time_t seconds = std::chrono::duration_cast<std::chrono::seconds>(since).count();
  std::tm date{};
  char words[40];
  std::strftime(words, sizeof words, "%F %T", localtime_r(&seconds, &date));
  return words;
}

void read_options(RunSummary& run) try {
  for (const auto& [name, values] : read_config(file_text(run.folder / "config.toml", max_config_bytes))) {
    std::string all;
    for (const std::string& value : values) all += (all.empty() ? "" : ", ") + value;
    run.options[name] = all;
  }
} catch (const std::exception& error) {
  run.problems.push_back("config.toml: " + std::string(error.what()));
}

void read_results(RunSummary& run) {
  const fs::path file = run.folder / Results::file;
  std::error_code error;
  if (!fs::exists(file, error)) return;
  const Json results = Json::parse(file_text(file, max_bytes), nullptr, false);
  if (!results.is_object()) {
    run.problems.push_back(std::string(Results::file) + ": not what a run has written");
    return;
  }
  run.program = text_of(results, "program");
  run.data = text_of(results, "data");
  run.begun = text_of(results, "begun");
  run.state = text_of(results, "state");
  run.ranks = count_of(results, "ranks");
  run.step = count_of(results, "step");
  run.steps = count_of(results, "steps");
  run.figures = object_of(results, "figures");
  run.words = object_of(results, "words");
}

std::string option(const RunSummary& run, const char* name) {
  const auto found = run.options.find(name);
  return found == run.options.end() ? "" : found->second;
}

// Of a run without results.json, or of one that has failed since it was written.
void complete(RunSummary& run) {
  if (run.begun.empty()) run.begun = time_of(run.folder / "config.toml");
  if (run.data.empty()) run.data = option(run, "data");
  run.encoder = option(run, "encoder");
  for (const char* name : {"method", "loss", "quantizer"})
    if (run.method.empty() && option(run, name) != "pairs") run.method = option(run, name);
  if (run.state == Results::finished || run.state == Results::stopped) return;
  const launch::RunFiles files = launch::run_files(run.folder);
  run.step = std::max(run.step.value_or(0), files.last_step);
  if (run.state.empty() && files.reported) run.state = Results::finished;
  if (run.state.empty() && files.stopped) run.state = Results::stopped;
  if (run.state != Results::finished && run.state != Results::stopped)
    run.state = launch::holder_of(run.folder).empty() ? "failed" : Results::running;
  if (!run.ranks) {
    const auto sessions = sessions_up_to(std::numeric_limits<int64_t>::max(), run.folder / "sessions.json");
    if (!sessions.empty()) run.ranks = std::ssize(sessions.back().ranks);
  }
}

}  // namespace

// A program's own figures stand between the loss and the time.
std::string RunSummary::result() const {
  constexpr size_t most = 2;
  const std::string loss = "loss of the last step", prefix = "test accuracy: ";
  std::string all;
  size_t count = 0;
  for (const auto& [name, value] : words.items()) {
    if (name == "training time" || count == most) break;
    if (name == loss || !value.is_string()) continue;
    all += (count++ == 0 ? "" : ", ") + (name.starts_with(prefix) ? name.substr(prefix.size()) : name) + " " +
           value.get<std::string>();
  }
  if (count == 0 && words.contains(loss) && words[loss].is_string()) return "loss " + words[loss].get<std::string>();
  return all;
}

bool is_run(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "config.toml", error) || fs::exists(folder / Results::file, error);
}

RunSummary summary_of(const fs::path& folder) {
  RunSummary run;
  run.folder = folder;
  run.figures = run.words = Json::object();
  read_options(run);
  read_results(run);
  complete(run);
  return run;
}

std::vector<RunSummary> runs_in(const fs::path& folder) {
  if (is_run(folder)) return {summary_of(folder)};
  std::error_code error;
  if (!fs::exists(folder, error)) throw MissingInput(folder.string() + ": there is no such folder");
  std::vector<RunSummary> all;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    if (is_run(entry.path())) all.push_back(summary_of(entry.path()));
  if (all.empty()) throw MissingInput(folder.string() + ": neither a run nor a folder of runs");
  std::sort(all.begin(), all.end(), [](const RunSummary& a, const RunSummary& b) {
    return std::pair(a.begun, a.folder) < std::pair(b.begun, b.folder);
  });
  return all;
}

}  // namespace weft::runs
