// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/schedules.h"

#include <algorithm>
#include <numbers>

#include "weft/engine/maths/maths.h"
#include "weft/engine/tensor/error.h"

namespace weft {
namespace {

void check_length(const char* schedule, int64_t steps) {
  require(steps > 0, schedule, ": ", steps, " steps; at least one is needed");
}
double fraction_of(int64_t step, int64_t steps) {
  return std::min(1.0, static_cast<double>(step) / static_cast<double>(steps));
}

}  // namespace

Schedule constant(double rate) {
  return [=](int64_t) { return rate; };
}

Schedule linear(double from, double to, int64_t steps) {
  check_length("linear", steps);
  return [=](int64_t step) {
    const double done = fraction_of(step, steps);
    return from * (1 - done) + to * done;
  };
}

Schedule cosine(double from, double to, int64_t steps) {
  check_length("cosine", steps);
  return [=](int64_t step) {
    return to + (from - to) * (1 + maths::cos(std::numbers::pi * fraction_of(step, steps))) / 2;
  };
}

Schedule stairs(double rate, double factor, int64_t steps) {
  check_length("stairs", steps);
  return [=](int64_t step) { return rate * maths::pow(factor, static_cast<double>(step / steps)); };
}

Schedule sequence(Schedule first, int64_t steps, Schedule second) {
  return [=, first = std::move(first), second = std::move(second)](int64_t step) {
    return step < steps ? first(step) : second(step - steps);
  };
}

Schedule warm_up(int64_t steps, Schedule then) {
  check_length("warm_up", steps);
  const double top = then(0);
  const auto rise = [=](int64_t step) { return top * static_cast<double>(step + 1) / static_cast<double>(steps + 1); };
  return sequence(rise, steps, std::move(then));
}

Schedule one_cycle(double rate, int64_t rising, int64_t steps) {
  rising = std::min(rising, steps / 2);
  const Schedule fall = cosine(rate, 0, steps - rising);
  return rising > 0 ? warm_up(rising, fall) : fall;
}

}  // namespace weft
