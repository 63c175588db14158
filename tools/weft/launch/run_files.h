// SPDX-License-Identifier: Apache-2.0
#pragma once
// How far a run has come, from the files in its folder (apps/shared/run/run_folder.h).
#include <sys/types.h>

#include <filesystem>
#include <string>

namespace weft::launch {

struct RunFiles {
  bool has_checkpoint = false;  // a sound one, or one that cannot be read now
  int64_t saved_step = 0;       // of the latest sound checkpoint
  int64_t last_step = 0;        // the last step that was made
  bool reported = false;        // the report is not older than the latest checkpoint, and is of all steps
  bool stopped = false;         // it is of a run that was asked to stop
  std::string beginning;        // another one each time that a session begins in the folder; empty if none has
  ino_t folder = 0;             // another one if an earlier run was moved aside

  bool begun_since(const RunFiles& before) const { return !beginning.empty() && beginning != before.beginning; }
  // Whether this state, after an attempt, has a later checkpoint of the same run.
  bool saved_since(const RunFiles& before) const {
    return has_checkpoint && (folder != before.folder || saved_step > before.saved_step);
  }
};

RunFiles run_files(const std::filesystem::path& run);

// Changes whenever a run makes a step or saves.
std::string activity_of(const std::filesystem::path& run);

// The process that holds the folder; empty if none does.
std::string holder_of(const std::filesystem::path& run);

}  // namespace weft::launch
