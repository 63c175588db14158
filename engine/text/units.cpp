// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/text/units.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <span>

#include "weft/engine/tensor/error.h"

namespace weft {
namespace {

struct Unit {
  const char* name;
  double value;
};
constexpr Unit times[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
constexpr Unit rates[] = {{"kbit", 125}, {"Mbit", 125e3}, {"Gbit", 125e6}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}};

double parsed(const std::string& given, std::span<const Unit> units, const char* examples) {
  double number = 0;
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), number);
  const std::string name(end, given.data() + given.size());
  const auto unit = std::ranges::find(units, name, &Unit::name);
  require(error == std::errc() && std::isfinite(number) && number >= 0 && unit != units.end(), "'", given,
          "' is not a number with a unit, as ", examples);
  return number * unit->value;
}

// In the largest unit that leaves a number of at least 1, with three digits.
std::string in_largest_unit(double value, std::span<const Unit> units) {
  const auto larger = [&](const Unit& unit) { return unit.value > value; };
  const auto end = std::ranges::find_if(units, larger);
  const Unit& unit = *(end == units.begin() ? end : end - 1);
  char text[40];
  std::snprintf(text, sizeof text, "%.3g%s", value / unit.value, unit.name);
  return text;
}

}  // namespace

double parsed_seconds(const std::string& text) { return parsed(text, times, "50us, 1ms or 2s"); }
double parsed_bytes_per_second(const std::string& text) { return parsed(text, rates, "100Mbit, 25Gbit or 3GB"); }
std::string in_seconds(double seconds) { return in_largest_unit(seconds, times); }
std::string in_bits_per_second(double rate) { return in_largest_unit(rate, std::span(rates).first(3)); }

}  // namespace weft
