// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/environment.h"

#include <charconv>
#include <string>

#include "weft/collectives/transport.h"

namespace weft {
namespace {

// Whether the whole text is a number, whose decimal point does not depend on the locale.
template <class T> bool is_number(std::string_view given, T& value) {
  const char* end = given.data() + given.size();
  const auto [stop, error] = std::from_chars(given.data(), end, value);
  return error == std::errc() && stop == end;
}

[[noreturn]] void refuse_variable(std::string_view variable, std::string_view given, const char* what) {
  throw Fault(exit_codes::usage, std::string(variable) + ": '" + std::string(given) + "' is not a number of " + what);
}

}  // namespace

std::chrono::milliseconds seconds_in(std::string_view variable, std::string_view given) {
  double seconds = 0;
  if (!is_number(given, seconds) || !(seconds >= 0.001 && seconds <= 1e6))
    refuse_variable(variable, given, "seconds from 0.001 to 1000000");
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

Link link_in(std::string_view variable, std::string_view given) try {
  return parsed_link(std::string(given));
} catch (const Error& error) {
  throw Fault(exit_codes::usage, std::string(variable) + ": " + error.what());
}

int ranks_in(std::string_view variable, std::string_view given) {
  int ranks = 0;
  if (!is_number(given, ranks) || ranks < 1) refuse_variable(variable, given, "ranks");
  return ranks;
}

bool switch_in(std::string_view variable, std::string_view given) {
  if (given != "0" && given != "1")
    throw Fault(exit_codes::usage, std::string(variable) + ": '" + std::string(given) + "' is not 0 or 1");
  return given == "1";
}

int launcher_number_in(std::string_view given) {
  int number = 0;
  return is_number(given, number) ? number : 0;
}

}  // namespace weft
