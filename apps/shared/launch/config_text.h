// SPDX-License-Identifier: Apache-2.0
#pragma once
// The text of a config.toml: a line NAME = VALUE for each option. A value is a bare word or number, a text in single or
// double quotes, or a list of these in brackets. There are no escapes and no tables. A # starts a comment.
#include <string>
#include <string_view>
#include <vector>

namespace weft {

constexpr size_t max_config_bytes = size_t{1} << 16;  // a longer text is no configuration

struct ConfigValue {
  std::string name;
  std::vector<std::string> values;  // one, or those of a list
};

// The values in their order. Throws WrongOption with the line for any other text, and for a name that occurs twice.
std::vector<ConfigValue> read_config(std::string_view text);

// What must be removed from a text before it can stand in quotes; empty if nothing.
std::string obstacle_to_quotes(std::string_view text);

}  // namespace weft
