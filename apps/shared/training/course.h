// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a program goes through its pictures: which it takes in each step, for how many steps, and at which rate it
// learns.
#include "apps/shared/launch/options.h"
#include "weft/data/batches.h"
#include "weft/engine/tensor/random.h"
#include "weft/optim/schedules.h"

namespace weft {

struct CourseSettings {
  int64_t batch = 256;
  double rate = 2e-3;
  std::string data;
  void add_to(CommandLine& line);
};

struct Course {
  Course(const CourseSettings& settings, const Options& options, int64_t pictures);

  const Random key;  // of all random draws
  Batches batches;
  const int64_t steps_per_epoch, steps;
  const Schedule rate;
};

}  // namespace weft
