// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/training/course.h"

namespace weft {

void CourseSettings::add_to(CommandLine& line) {
  line.add("--batch", batch, "pictures per step, on all ranks together", {2, 60000});
  line.add("--rate", rate, "highest learning rate of the schedule", {0, 10});
  line.add("--data", data, "folder of the four IDX files (default: $WEFT_DATA, then Debian's)");
}

Course::Course(const CourseSettings& settings, const Options& options, int64_t pictures)
    : key{static_cast<uint64_t>(options.seed)},
      batches(pictures, settings.batch, key.seed),
      steps_per_epoch((pictures + settings.batch - 1) / settings.batch),
      steps(options.steps > 0 ? options.steps : options.epochs * steps_per_epoch),
      rate(one_cycle(settings.rate, 50, steps)) {}

}  // namespace weft
