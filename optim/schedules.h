// SPDX-License-Identifier: Apache-2.0
#pragma once
// Learning rates as plain functions of the step number, which starts at 0.
//
//   const Schedule rate = warm_up(500, cosine(1e-3, 1e-5, 10000));
//   optimizer.step(gradients, rate(step));
#include <cstdint>
#include <functional>

namespace weft {

using Schedule = std::function<double(int64_t step)>;

Schedule constant(double rate);
// From `from` at step 0 to `to` at step `steps` and later, linearly or along half a cosine.
Schedule linear(double from, double to, int64_t steps);
Schedule cosine(double from, double to, int64_t steps);
// Multiplies `rate` by `factor` after every `steps` steps.
Schedule stairs(double rate, double factor, int64_t steps);

// `first` for `steps` steps, then `second`, starting with its step 0.
Schedule sequence(Schedule first, int64_t steps, Schedule second);
// Rises linearly to the first rate of `then`, which step `steps` has. No step has the rate 0.
Schedule warm_up(int64_t steps, Schedule then);
// For a training of `steps` steps: rises to `rate` in the first `rising` steps, at most half of all, and falls along
// half a cosine to 0 after the last.
Schedule one_cycle(double rate, int64_t rising, int64_t steps);

}  // namespace weft
