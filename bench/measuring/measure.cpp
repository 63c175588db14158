// SPDX-License-Identifier: Apache-2.0
#include "bench/measuring/measure.h"

#include <fmt/format.h>
#include <sys/times.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>

namespace weft::bench {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

namespace {

// The CPU seconds of all processes except this one and the children that it has waited for.
double time_of_others() {
  std::ifstream file("/proc/stat");
  std::string cpu;
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, interrupts = 0, soft = 0;
  file >> cpu >> user >> nice >> system >> idle >> waiting >> interrupts >> soft;
  tms own{};
  times(&own);
  const double mine = static_cast<double>(own.tms_utime + own.tms_stime + own.tms_cutime + own.tms_cstime);
  return (user + nice + system + interrupts + soft - mine) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

constexpr double shortest_burst = 2e-3;

}  // namespace

Middle middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return {(values[(n - 1) / 2] + values[n / 2]) / 2, values.front(), values.back()};
}

Burst timed(std::function<void()> call, std::function<void()> finish) {
  const auto run = [call = std::move(call), finish = std::move(finish)](int64_t count) {
    const double begin = now();
    for (int64_t i = 0; i < count; ++i) call();
    if (finish) finish();
    return now() - begin;
  };
  run(2);  // warms up pages, pools and branch predictors
  int64_t count = 1;
  while (run(count) < shortest_burst) count *= 2;
  return [run, count] { return run(count) / static_cast<double>(count); };
}

Burst per(double units, Burst burst) {
  return [=] { return burst() / units; };
}

Rounds::Rounds(const std::vector<Burst>& bursts, int rounds, int repeats) : times_(bursts.size()) {
  const size_t n = bursts.size();
  for (int round = 0; round < rounds; ++round) {
    std::vector<double> best(n, INFINITY);
    for (int repeat = 0; repeat < repeats; ++repeat)
      for (size_t i = 0; i < n; ++i) {
        const size_t which = (round + repeat) % 2 ? n - 1 - i : i;
        best[which] = std::min(best[which], bursts[which]());
      }
    for (size_t i = 0; i < n; ++i) times_[i].push_back(best[i]);
  }
}

std::vector<double> Rounds::ratio(size_t numerator, size_t denominator) const {
  std::vector<double> result = times_[numerator];
  for (size_t round = 0; round < result.size(); ++round) result[round] /= times_[denominator][round];
  return result;
}

std::vector<double> geometric_mean(const std::vector<std::vector<double>>& values) {
  std::vector<double> result(values[0].size(), 0);
  for (const auto& each : values)
    for (size_t round = 0; round < result.size(); ++round) result[round] += std::log(each[round]);
  for (double& value : result) value = std::exp(value / static_cast<double>(values.size()));
  return result;
}

std::vector<double> scaled(std::vector<double> values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

Neighbours::Neighbours() : others_(time_of_others()), wall_(now()) {}
double Neighbours::cores() const {
  const double elapsed = now() - wall_;
  return elapsed < 0.2 ? 0
                       : std::max(0.0, (time_of_others() - others_) / elapsed);  // the kernel counts in units of 10 ms
}

std::string duration(double seconds) {
  const char* units[] = {"s", "ms", "us", "ns"};
  int unit = 0;
  for (; seconds < 1 && unit < 3; ++unit) seconds *= 1000;
  return fmt::format("{:.3g} {}", seconds, units[unit]);
}

std::string rate(double per_second, const std::string& unit) { return fmt::format("{:.3g} {}/s", per_second, unit); }

}  // namespace weft::bench
