// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/run_folder.h"

#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "apps/shared/launch/config_text.h"
#include "apps/shared/launch/options.h"
#include "weft/data/files/durable_file.h"
#include "weft/data/idx.h"  // MissingInput
#include "weft/engine/text/file_text.h"
#include "weft/engine/text/words.h"

namespace weft {

namespace fs = std::filesystem;

namespace {

std::map<std::string, std::string> settings_in(const std::string& config) {
  const std::string between = " = ";
  std::map<std::string, std::string> settings;
  std::istringstream lines(config);
  for (std::string line; std::getline(lines, line);)
    if (const size_t end = line.find(between); end != std::string::npos)
      settings[line.substr(0, end)] = line.substr(end + between.size());
  return settings;
}

fs::path config_of(const fs::path& run) { return run / "config.toml"; }
bool has_a_run(const fs::path& folder) { return fs::exists(config_of(folder)); }

// The options that differ from those of a run, but for where and how it runs.
std::vector<std::string> changes_of(const fs::path& run, const std::string& config) {
  const std::set<std::string> where_and_how = {"checkpoint-every",
                                               "checkpoint-minutes",
                                               "data",
                                               "dry-run",
                                               "export",
                                               "fresh",
                                               "json",
                                               "keep",
                                               "out",
                                               "quiet",
                                               "ranks",
                                               "record-step",
                                               "resume",
                                               "timeout",
                                               "trace"};
  const auto before = settings_in(file_text(config_of(run), max_config_bytes));
  std::vector<std::string> changes;
  for (const auto& [name, value] : settings_in(config))
    if (const auto old = before.find(name);
        old != before.end() && old->second != value && where_and_how.count(name) == 0)
      changes.push_back(name + " was " + old->second + " and is now " + value);
  return changes;
}

// When a run began.
std::string beginning_of(const fs::path& run, const char* format) {
  const auto since = fs::file_time_type::clock::to_sys(fs::last_write_time(config_of(run))).time_since_epoch();
  const std::time_t seconds = std::chrono::duration_cast<std::chrono::seconds>(since).count();
  std::tm date{};
  char words[40];
  std::strftime(words, sizeof words, format, localtime_r(&seconds, &date));
  return words;
}

// Tells a run from others of its program: "2026-11-27-nt-xent", the day on which it began and its method.
std::string day_and_method(const fs::path& run) {
  const auto settings = settings_in(file_text(config_of(run), max_config_bytes));
  std::string method;
  for (const char* option : {"method", "loss", "quantizer"})
    if (const auto found = settings.find(option); found != settings.end() && method.empty())
      for (const char c : found->second)
        if (std::isalnum(static_cast<unsigned char>(c)) || c == '-') method += c;
  return beginning_of(run, "%F") + (method.empty() ? "" : "-" + method);
}

void expect_room_for(const fs::path& folder) {
  fs::path above = fs::absolute(folder / "").parent_path().parent_path();
  while (!fs::exists(above)) above = above.parent_path();
  if (!fs::is_directory(above))
    throw OutputFailure(folder.string() + ": cannot be created: " + above.string() + " is a file");
  // Permissions do not tell it all, so a folder is made there and removed.
  std::string trial = above / ".weft-XXXXXX";
  if (!mkdtemp(trial.data()))
    throw OutputFailure(folder.string() + ": cannot be created in " + above.string() + ": " + std::strerror(errno));
  rmdir(trial.c_str());
}

// The latest checkpoint of a run that a command of these options has begun, unless it has ended: then its report is not
// older.
Latest unfinished(const fs::path& run, const std::string& config, int64_t steps) {
  if (!has_a_run(run) || !changes_of(run, config).empty()) return {};
  Latest latest = latest_checkpoint(RunFolder::checkpoints(run));
  const bool ended = latest.file && latest.step >= steps && is_reported(run, *latest.file);
  return ended ? Latest() : std::move(latest);
}

bool is_free(const fs::path& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    if (entry.path().filename() != FolderLock::name) return false;
  return !error;
}

}  // namespace

RunFolder::RunFolder(fs::path path) : path_(std::move(path)) {
  if (path_.empty()) throw WrongOption("--out: the name of a folder is needed");
  if (!fs::exists(path_)) {
    expect_room_for(path_);
    return;
  }
  if (!fs::is_directory(path_)) throw WrongOption(path_.string() + ": not a folder; give another --out");
  DurableFile::sweep(path_);  // of a run that was killed before it had begun
  if (!has_a_run(path_) && !is_free(path_))
    throw WrongOption(path_.string() + ": contains something other than a run; give another --out");
  lock();
}

void RunFolder::lock() {
  FolderLock lock(path_);
  // A process that was just killed has its lock until the system has closed its files. Other ranks wait meanwhile, so
  // this is well below a deadline of a second.
  for (int tries = 0; !lock.holder().empty() && tries < 50; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    lock = FolderLock(path_);
  }
  if (!lock.holder().empty())
    throw WrongOption(path_.string() + ": another run has it, " + lock.holder() +
                      "; give another --out, or wait until that has ended");
  lock_.emplace(std::move(lock));  // and releases a folder that was moved aside
}

void RunFolder::begin(const std::string& config, std::vector<std::string> metric_names, int64_t resumed_step) {
  if (!lock_) {
    make_durable_folder(path_);
    lock();
  }
  if (resumed_step == 0) make_room();
  std::error_code absent;
  const auto began = fs::last_write_time(config_of(path_), absent);
  write("config.toml", config);
  if (!absent) fs::last_write_time(config_of(path_), began);
  metrics_ = std::make_unique<Metrics>(path_, std::move(metric_names), resumed_step);
}

void RunFolder::make_room() {
  if (!has_a_run(path_)) return;
  const std::string name = (path_ / "").parent_path().string() + "-" + day_and_method(path_);
  moved_to_ = name;
  for (int number = 2; fs::exists(moved_to_); ++number) moved_to_ = name + "-" + std::to_string(number);
  std::error_code error;
  fs::rename(path_, moved_to_, error);
  if (error) throw OutputFailure(path_.string() + ": cannot be moved aside: " + error.message());
  lock_->folder_is_now(moved_to_);
  make_durable_folder(path_);
  lock();
}

std::string RunFolder::begun() const { return beginning_of(path_, "%F %T"); }

void RunFolder::write(const std::string& name, const std::string& bytes) const {
  DurableFile file(path_ / name);
  file.write(0, bytes.data(), bytes.size());
  file.commit();
}

bool is_reported(const fs::path& run, const SafetensorsFile& checkpoint) {
  const fs::path report = run / RunFolder::report;
  std::error_code error;
  return fs::exists(report) && fs::last_write_time(report, error) >= fs::last_write_time(checkpoint.path(), error);
}

void expect_checkpoint(const std::string& resume, const fs::path& run) {
  if (resume == "none" || resume == "unfinished") return;
  if (resume == "auto" && !fs::exists(RunFolder::checkpoints(run)))
    throw MissingInput(run.string() + ": there is no checkpoint to go on from; leave out --resume auto to begin");
  if (resume != "auto" && !may_be_checkpoint(resume))
    throw MissingInput(resume + ": there is no such checkpoint; --resume takes unfinished, auto, none or a path");
}

Latest checkpoint_to_resume(const std::string& resume, const fs::path& run, const std::string& config, int64_t steps) {
  if (resume == "none") return {};
  if (resume == "unfinished") return unfinished(run, config, steps);
  if (resume == "auto") return checkpoint_at(RunFolder::checkpoints(run));
  Latest chosen = checkpoint_at(resume);
  std::error_code absent;
  const fs::path here = RunFolder::checkpoints(run);
  const bool of_this_run = fs::equivalent(chosen.file->path().parent_path(), here, absent);
  if (const int64_t last = of_this_run ? latest_checkpoint(here).step : 0; last > chosen.step)
    throw WrongOption("--resume " + resume + ": " + run.string() + " has gone on to step " + grouped(last) +
                      "; give another --out to go on from step " + grouped(chosen.step));
  return chosen;
}

std::vector<std::string> changes_since(const fs::path& checkpoint, const std::string& config) {
  return changes_of(checkpoint.parent_path().parent_path(), config);
}

}  // namespace weft
