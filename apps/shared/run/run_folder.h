// SPDX-License-Identifier: Apache-2.0
#pragma once
// The files of a run. Rank 0's process holds the folder from the start of the program to its end; other ranks have
// none.
//
//   config.toml       the options of the run, ready for --config
//   metrics.jsonl, metrics.csv, events.out.tfevents.weft
//   checkpoints/      docs/checkpoints.md
//   *.png             pictures
//   report.html       the report, in one page
//   results.json      what the run has come to (results.h)
//   tapes.json        the tapes of all ranks in one step (--record-step)
//   sessions.json     time and traffic of each session: from a start of the run to its interruption or end
//   lock              the process that holds the folder
#include <optional>

#include "apps/shared/run/metrics.h"
#include "weft/data/files/checkpoint.h"
#include "weft/data/files/folder_lock.h"

namespace weft {

class RunFolder {
 public:
  // Throws if the folder cannot be made, if another run holds it, or if it contains anything but a run. Leaves all as
  // it is.
  explicit RunFolder(std::filesystem::path path);

  // Keeps what is there up to `resumed_step`. A run that starts anew moves an earlier run aside, to a name with the day
  // on which that began, its method and, if there is one already, a number: DIR-2026-11-27-nt-xent-2.
  void begin(const std::string& config, std::vector<std::string> metric_names, int64_t resumed_step = 0);

  const std::filesystem::path& path() const { return path_; }
  std::string begun() const;  // date and time
  static constexpr const char* report = "report.html";
  static std::filesystem::path checkpoints(const std::filesystem::path& run) { return run / "checkpoints"; }
  const std::filesystem::path& moved_to() const { return moved_to_; }  // the new place of an earlier run, or empty
  Metrics& metrics() { return *metrics_; }

  void write(const std::string& name, const std::string& bytes) const;  // whole or not at all

 private:
  void lock();
  void make_room();

  std::filesystem::path path_, moved_to_;
  std::optional<FolderLock> lock_;
  std::unique_ptr<Metrics> metrics_;
};

// The checkpoint that --resume names: none for "none"; for "unfinished" the latest sound one of the run's folder, if
// that run has the same options, and has not reported all its steps; for "auto" the latest one; else the one that a
// path names (checkpoint_at). Throws if the last two are not there.
Latest checkpoint_to_resume(const std::string& resume, const std::filesystem::path& run, const std::string& config,
                            int64_t steps);
// Whether the report is of this checkpoint, and not of an earlier one.
bool is_reported(const std::filesystem::path& run, const SafetensorsFile& checkpoint);
// Throws if --resume names a checkpoint, or a folder of some, and none is there.
void expect_checkpoint(const std::string& resume, const std::filesystem::path& run);

// The options that differ from those of the run that wrote a checkpoint, except options of where and how it runs:
// `loss was "nt-xent" and is now "vicreg"`. Empty if that run's config.toml is gone.
std::vector<std::string> changes_since(const std::filesystem::path& checkpoint, const std::string& config);

}  // namespace weft
