// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/launch/run_files.h"

#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "weft/data/files/checkpoint.h"
#include "weft/data/files/durable_file.h"
#include "weft/data/files/folder_lock.h"
#include "weft/engine/text/file_text.h"

namespace weft::launch {
namespace {

namespace fs = std::filesystem;

constexpr size_t beginning = size_t{1} << 20;  // bytes of a report; its figures come first

// Of which file this is, and when it was changed.
std::string state_of(const fs::path& path) {
  struct stat about {};
  if (stat(path.c_str(), &about) != 0) return "";
  return std::to_string(about.st_ino) + " " + std::to_string(about.st_size) + " " +
         std::to_string(about.st_mtim.tv_sec) + "." + std::to_string(about.st_mtim.tv_nsec);
}

// The last step in metrics.jsonl. A killed process may leave a part of a line at its end.
int64_t last_step_in(const fs::path& metrics) {
  constexpr off_t enough = 1 << 16;  // bytes, for several lines
  const Descriptor file(open(metrics.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about {};
  if (!file || fstat(file.number(), &about) != 0 || !S_ISREG(about.st_mode)) return 0;
  std::string text(static_cast<size_t>(std::min(enough, about.st_size)), '\0');
  const ssize_t count = pread(file.number(), text.data(), text.size(), about.st_size - static_cast<off_t>(text.size()));
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  const size_t end = text.rfind('\n');
  if (end == std::string::npos || end == 0) return 0;
  const size_t before = text.rfind('\n', end - 1), begin = before == std::string::npos ? 0 : before + 1;
  const auto row = nlohmann::json::parse(text.substr(begin, end - begin), nullptr, false);
  const bool is_row = row.is_object() && row.contains("step") && row["step"].is_number_integer();
  return is_row ? row["step"].get<int64_t>() : 0;
}

bool is_newer(const fs::path& file, const fs::path& other) {
  std::error_code error;
  return fs::exists(file, error) && fs::last_write_time(file, error) >= fs::last_write_time(other, error);
}

}  // namespace

RunFiles run_files(const fs::path& run) {
  RunFiles files;
  struct stat about {};
  if (stat(run.c_str(), &about) != 0) return files;
  files.folder = about.st_ino;
  files.beginning = state_of(run / "config.toml");
  try {
    const Latest latest = latest_checkpoint(run / "checkpoints");
    files.has_checkpoint = latest.file.has_value();
    files.saved_step = latest.step;
    if (latest.file && is_newer(run / "report.html", latest.file->path())) {
      files.stopped = file_text(run / "report.html", beginning).find("stopped after step") != std::string::npos;
      files.reported = !files.stopped;
    }
  } catch (const std::exception&) {
    files.has_checkpoint = true;  // a program that goes on will say what is wrong
  }
  files.last_step = std::max(files.saved_step, last_step_in(run / "metrics.jsonl"));
  return files;
}

std::string activity_of(const fs::path& run) {
  return state_of(run / "metrics.jsonl") + " " + state_of(run / "checkpoints") + " " + state_of(run);
}

std::string holder_of(const fs::path& run) {
  std::error_code error;
  try {
    return fs::is_directory(run, error) ? FolderLock(run).holder() : "";
  } catch (const OutputFailure&) {
    return "";  // a program that goes on will say what is wrong
  }
}

}  // namespace weft::launch
