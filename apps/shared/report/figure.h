// SPDX-License-Identifier: Apache-2.0
#pragma once
// A result of a run: in words for its last line and its report, and as a number for --json.
#include <optional>
#include <string>
#include <vector>

#include "weft/engine/text/words.h"

namespace weft {

struct Figure {
  std::string name, value;
  std::optional<double> number = {};  // in seconds if it is a time; none if the value is no number
};

// An object with their numbers by their names, or their words if they are no numbers.
std::string json(const std::vector<Figure>& figures);

inline Figure in_percent(const std::string& name, double fraction) { return {name, percent(fraction), fraction}; }
inline Figure in_digits(const std::string& name, double number) { return {name, short_number(number), number}; }

}  // namespace weft
