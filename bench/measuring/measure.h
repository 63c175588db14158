// SPDX-License-Identifier: Apache-2.0
#pragma once
// The timing of all measurements in this folder.
//
// The compared sides run alternately in one process (A B, B A, A B, ...), so that clock speed, heat and other processes
// affect them equally. A round keeps the shortest of a few bursts of each side, because disturbances only make a burst
// longer. Goals are judged by the median over rounds of the ratio within a round.
#include <functional>
#include <string>
#include <vector>

namespace weft::bench {

struct Middle {
  double median = 0, low = 0, high = 0;
};
Middle middle(std::vector<double> values);

double now();  // in seconds

// Measures once. Returns seconds per call or, after `per`, per operation, element or byte.
using Burst = std::function<double()>;

// Repeats the call until a burst lasts long enough to be timed. `finish` waits for work that a call only enqueues.
Burst timed(std::function<void()> call, std::function<void()> finish = {});
Burst per(double units, Burst burst);

class Rounds {
 public:
  explicit Rounds(const std::vector<Burst>& bursts, int rounds = 7, int repeats = 3);

  const std::vector<double>& of(size_t burst) const { return times_[burst]; }  // one value per round
  std::vector<double> ratio(size_t numerator, size_t denominator) const;
  double median(size_t burst) const { return middle(times_[burst]).median; }

 private:
  std::vector<std::vector<double>> times_;
};

// The geometric mean of several series of rounds, round by round.
std::vector<double> geometric_mean(const std::vector<std::vector<double>>& values);
std::vector<double> scaled(std::vector<double> values, double factor);

// The number of cores that other processes have kept busy since construction. Above 0.05, results are doubtful.
class Neighbours {
 public:
  Neighbours();
  double cores() const;

 private:
  double others_, wall_;
};

// "3.21 us", "277 GFLOP/s".
std::string duration(double seconds);
std::string rate(double per_second, const std::string& unit);

}  // namespace weft::bench
