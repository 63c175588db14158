// SPDX-License-Identifier: Apache-2.0
#pragma once
// The schedules of the learning rate, by their names in --schedule.
#include <cstdint>
#include <string>
#include <vector>

#include "weft/optim/schedules.h"

namespace weft {

struct ScheduleChoice {
  std::string name = "one-cycle";
  int64_t warmup = 50;   // steps in which the rate rises
  double last_rate = 0;  // of linear and cosine
  double factor = 0.1;   // of stairs, after every third of the steps
  Schedule make(double rate, int64_t steps) const;
};
std::vector<std::string> names_of_schedules();

}  // namespace weft
