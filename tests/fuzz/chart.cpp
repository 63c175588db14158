// SPDX-License-Identifier: Apache-2.0
// Numbers of a training, any bits of doubles, in charts of all kinds. A chart ends, has a moderate size, and no place
// in it is not a number.
#include "apps/shared/report/chart.h"

#include <cmath>
#include <cstring>

#include "tests/fuzz/target.h"

namespace weft::fuzz {
namespace {

void check(const std::string& chart, size_t numbers) {
  constexpr size_t frame = 1 << 16;
  must(chart.size() <= frame + 256 * numbers, "a chart has a moderate size");
  for (const char* wrong : {"nan", "inf"}) must(chart.find(wrong) == std::string::npos, "places are numbers");
}

}  // namespace

void read(std::string_view bytes) {
  std::vector<double> numbers(bytes.size() / sizeof(double));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(double));
  Curve points;
  for (size_t i = 0; i + 1 < numbers.size(); i += 2) points.push_back({numbers[i], numbers[i + 1]});
  while (!points.empty() && !std::isfinite(points.back().y)) points.pop_back();  // a legend tells the last value
  check(line_chart({{"one", points}, {"two", {}}}, "step"), numbers.size());
  check(scatter_chart({{"one", points}}), numbers.size());
  for (double& height : numbers) height = std::isnan(height) ? 0 : std::abs(height);
  check(bar_chart(numbers, "code"), numbers.size());
}

}  // namespace weft::fuzz
