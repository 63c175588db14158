// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the standard library of Debian's emscripten lacks, included before each file.
#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>

namespace std {

#ifndef __cpp_lib_bit_cast
template <class To, class From> constexpr To bit_cast(const From& from) { return __builtin_bit_cast(To, from); }
#endif

// The fewest digits that identify the number, in the shorter of both forms, as the standard asks.
template <class T>
requires std::is_floating_point_v<T> to_chars_result to_chars(char* first, char* last, T number) {
  const auto written = [&](const string& text) {
    if (static_cast<size_t>(last - first) < text.size()) return to_chars_result{last, errc::value_too_large};
    return to_chars_result{std::copy(text.begin(), text.end(), first), errc()};
  };
  char line[64];
  if (number != number || number - number != 0) {
    snprintf(line, sizeof line, "%f", static_cast<double>(number));
    return written(line);
  }
  const auto read = [&] {
    return sizeof(T) == 4 ? static_cast<T>(strtof(line, nullptr)) : static_cast<T>(strtod(line, nullptr));
  };
  int digits = 0;
  do snprintf(line, sizeof line, "%.*e", digits, static_cast<double>(number));
  while (read() != number && ++digits < 17);
  const string scientific = line;
  const int exponent = atoi(scientific.c_str() + scientific.find('e') + 1);
  snprintf(line, sizeof line, "%.*f", std::max(0, digits - exponent), static_cast<double>(number));
  const bool fits = strlen(line) < sizeof line - 1 && exponent < 18;
  return written(fits && strlen(line) <= scientific.size() ? line : scientific);
}

#ifndef __cpp_lib_ranges
namespace ranges {
template <class R, class F> constexpr bool all_of(const R& range, F f) {
  return std::all_of(std::begin(range), std::end(range), f);
}
template <class R, class F> bool any_of(const R& range, F f) {
  return std::any_of(std::begin(range), std::end(range), f);
}
template <class R, class F> auto find_if(R&& range, F f) { return std::find_if(std::begin(range), std::end(range), f); }
template <class A, class B> auto mismatch(A&& a, B&& b) {
  struct Both {
    decltype(std::begin(a)) in1;
    decltype(std::begin(b)) in2;
  };
  const auto [in1, in2] = std::mismatch(std::begin(a), std::end(a), std::begin(b), std::end(b));
  return Both{in1, in2};
}
}  // namespace ranges
#endif

}  // namespace std
