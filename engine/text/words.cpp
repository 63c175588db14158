// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/text/words.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <sstream>

namespace weft {
namespace {

template <class... Arguments> std::string formatted(const char* format, Arguments... arguments) {
  char line[64];
  std::snprintf(line, sizeof line, format, arguments...);
  return line;
}

// The number in the first unit that leaves at most three digits before the point.
std::string scaled(double number, double base, const char* const* units, int count) {
  int unit = 0;
  for (; unit + 1 < count && std::abs(number) >= 999.5; ++unit) number /= base;
  return formatted(unit == 0 ? "%.4g%s" : "%.3g%s", number, units[unit]);
}

}  // namespace

std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  for (auto place = static_cast<int64_t>(digits.size()) - 3; place > (number < 0); place -= 3)
    digits.insert(static_cast<size_t>(place), ",");
  return digits;
}

std::string short_number(double number) {
  static constexpr const char* units[] = {"", "k", "M", "G", "T"};
  return scaled(number, 1000, units, 5);
}

std::string exact_number(double number) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, number).ptr};
}

std::string bytes_in_words(double bytes) {
  static constexpr const char* units[] = {" B", " KiB", " MiB", " GiB", " TiB"};
  return scaled(bytes, 1024, units, 5);
}

std::string duration(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  if (seconds > 0 && seconds < 0.0000995) return formatted("%.2g us", 1e6 * seconds);
  if (seconds > 0 && seconds < 0.0995) return formatted("%.2g ms", 1000 * seconds);
  if (seconds < 9.95) return formatted("%.1f s", seconds);
  const int64_t whole = std::llround(seconds);
  if (whole < 3600) return formatted("%d:%02d", static_cast<int>(whole / 60), static_cast<int>(whole % 60));
  return grouped(whole / 3600) +
         formatted(":%02d:%02d", static_cast<int>(whole / 60 % 60), static_cast<int>(whole % 60));
}

std::string percent(double part) { return formatted("%.2f %%", 100 * part); }
std::string percent(double part, double whole) { return whole > 0 ? formatted("%.0f %%", 100 * part / whole) : "0 %"; }

std::string wrapped(const std::string& text, size_t most) {
  std::string all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line); all += line + "\n") {
    const size_t gap = line.rfind("  "), indent = gap == std::string::npos ? 0 : gap + 2;
    for (size_t space; line.size() > most && (space = line.rfind(' ', most)) != std::string::npos && space >= indent;) {
      all += line.substr(0, space) + "\n";
      line.replace(0, space + 1, indent, ' ');
    }
  }
  return all;
}

std::string as_html(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      case '\'': safe += "&#39;"; break;
      default: safe += c;
    }
  }
  return safe;
}

}  // namespace weft
