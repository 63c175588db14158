// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a run of a program has recorded of its steps, in sessions.json of its folder: the means of its last session.
#include <array>
#include <filesystem>

#include "weft/collectives/checks/traffic.h"

namespace weft::plan {

struct RecordedRun {
  struct Calls {
    double small = 0, large = 0;  // of a rank in a step
    double size = 0;              // of a large one, in bytes, as in call_cost.h
  };
  int64_t ranks = 0;
  double seconds = 0;  // of a step
  double images = 0;   // of a rank in a step
  std::array<Calls, Traffic::verbs> calls{};
};

// `path` is the folder, or the file. Throws MissingInput or MalformedInput, which names the file.
RecordedRun read_run(const std::filesystem::path& path);

}  // namespace weft::plan
