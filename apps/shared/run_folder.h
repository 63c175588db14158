#pragma once
// What a run leaves on the disk. Rank 0's process has it from the start of the program to its end, the others have
// none.
//
//   config.toml       what the run was asked for, ready for --config
//   metrics.jsonl, metrics.csv, events.out.tfevents.weft
//   checkpoints/      docs/checkpoints.md
//   *.png             pictures
//   report.html       all of it in one page
//   sessions.json     how long the run has taken so far, and what its ranks have sent, whenever it was interrupted
//   lock              whose run it is, while it runs
#include <optional>

#include "apps/shared/metrics.h"
#include "data/checkpoint.h"
#include "data/folder_lock.h"

namespace weft {

class RunFolder {
 public:
  // Refused if it cannot be made, if another run has it, or if it has something else than a run in it. Changes nothing.
  explicit RunFolder(std::filesystem::path path);

  // Goes on with what is there up to `resumed_step`. A run from the beginning moves an earlier one aside, to the first
  // of DIR-1, DIR-2, ... that is free.
  void begin(const std::string& config, std::vector<std::string> metric_names, int64_t resumed_step = 0);

  const std::filesystem::path& path() const { return path_; }
  static std::filesystem::path checkpoints(const std::filesystem::path& run) { return run / "checkpoints"; }
  const std::filesystem::path& moved_to() const { return moved_to_; }  // where an earlier run is now, or empty
  Metrics& metrics() { return *metrics_; }

  void write(const std::string& name, const std::string& bytes) const;  // whole or not at all

 private:
  void lock();
  void make_room();

  std::filesystem::path path_, moved_to_;
  std::optional<FolderLock> lock_;
  std::unique_ptr<Metrics> metrics_;
};

// What --resume means for a run's folder: "none", "auto" for its latest sound checkpoint if there is one, else the path
// of a checkpoint, or of a folder with at least one.
Latest checkpoint_to_resume(const std::string& resume, const std::filesystem::path& run);
// Complains if there is nothing at that path.
void expect_checkpoint(const std::string& resume);

// In what a run differs from the one that wrote a checkpoint, of all that it is asked for but where and how it runs:
// `loss was "nt-xent" and is now "vicreg"`. Nothing where that run's config.toml is gone.
std::vector<std::string> changes_since(const std::filesystem::path& checkpoint, const std::string& config);

}  // namespace weft
