// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tapes of all ranks in one step, as tapes.json in the folder of a run, which `weft view` shows.
#include <span>

#include "weft/collectives/checks/tape_table.h"

namespace weft {

inline constexpr const char* tape_file = "tapes.json";

struct RecordedStep {
  std::string title;  // of the run
  int64_t step;
  int64_t ranks;
  std::span<const TapeTable> tapes;
};

std::string json(const RecordedStep& step);

}  // namespace weft
