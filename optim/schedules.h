#pragma once
// Rates as plain functions of the number of a step, the first of which is 0.
//
//   const Schedule rate = warm_up(500, cosine(1e-3, 1e-5, 10000));
//   optimizer.step(gradients, rate(step));
#include <cstdint>
#include <functional>

namespace weft {

using Schedule = std::function<double(int64_t step)>;

Schedule constant(double rate);
// From `from` at step 0 to `to` at step `steps` and ever after, in a straight line or along half a cosine.
Schedule linear(double from, double to, int64_t steps);
Schedule cosine(double from, double to, int64_t steps);
// `rate`, times `factor` once more after every `steps` steps.
Schedule stairs(double rate, double factor, int64_t steps);

// `first` for so many steps, then `second` from its own step 0 on.
Schedule sequence(Schedule first, int64_t steps, Schedule second);
// Rises in a straight line to where `then` begins, so that step `steps` has that rate and no step the rate 0.
Schedule warm_up(int64_t steps, Schedule then);
// Of a training of `steps` steps: rises to `rate` in the first `rising` of them, at most in half, and falls along
// half a cosine to 0 after the last.
Schedule one_cycle(double rate, int64_t rising, int64_t steps);

}  // namespace weft
