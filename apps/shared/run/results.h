// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a run has come to, in results.json of its folder: for `weft runs`, and for other programs.
#include <cstdint>
#include <string>
#include <vector>

#include "apps/shared/report/figure.h"

namespace weft {

struct Results {
  static constexpr const char* file = "results.json";
  // A run that has failed has no time to say so: it is "running", and no process holds its folder.
  static constexpr const char *running = "running", *stopped = "stopped", *finished = "finished";

  std::string program, title, data, begun;  // `begun`: date and time
  int64_t ranks = 0, step = 0, steps = 0;
  std::string state = running;
  std::vector<Figure> figures;  // of the report, and of the program's last line
};

// Its object "figures" is that of the last line with --json. "words" has the same figures as people read them.
std::string json(const Results& results);

}  // namespace weft
