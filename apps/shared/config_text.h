#pragma once
// The text of a config.toml: a line NAME = VALUE for each option, where a value is a bare word or number, a text in
// quotes, or a list of these in brackets. Quotes of either kind hold anything but themselves; there are no escapes and
// no tables. What follows a # is a comment.
#include <string>
#include <string_view>
#include <vector>

namespace weft {

constexpr size_t most_config_bytes = size_t{1} << 16;  // a longer text is no configuration

struct ConfigValue {
  std::string name;
  std::vector<std::string> values;  // more or less than one if it is a list
};

// In their order. WrongOption, with the line, for everything else, and for a name that comes twice.
std::vector<ConfigValue> read_config(std::string_view text);

// What has to go from a text before a configuration can hold it in quotes; empty if nothing has.
std::string obstacle_to_quotes(std::string_view text);

}  // namespace weft
