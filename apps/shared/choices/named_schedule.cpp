// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/choices/named_schedule.h"

#include <algorithm>

#include "weft/engine/tensor/error.h"

namespace weft {

std::vector<std::string> names_of_schedules() { return {"one-cycle", "constant", "linear", "cosine", "stairs"}; }

Schedule ScheduleChoice::make(double rate, int64_t steps) const {
  if (name == "one-cycle") return one_cycle(rate, warmup, steps);
  const int64_t rising = std::min(warmup, steps / 2), rest = std::max<int64_t>(1, steps - rising);
  const Schedule falling = [&] {
    if (name == "linear") return linear(rate, last_rate, rest);
    if (name == "cosine") return cosine(rate, last_rate, rest);
    if (name == "stairs") return stairs(rate, factor, (rest + 2) / 3);
    require(name == "constant", "there is no schedule called ", name);
    return constant(rate);
  }();
  return rising > 0 ? warm_up(rising, falling) : falling;
}

}  // namespace weft
