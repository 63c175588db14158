#pragma once
// What environment variables say, as numbers. Those of Weft are a Fault, by the exit code of a wrong command line, if
// they say something else.
#include <chrono>
#include <string_view>

namespace weft {

std::chrono::milliseconds seconds_in(std::string_view variable, std::string_view given);  // from 0.001 to 1e6
int ranks_in(std::string_view variable, std::string_view given);                          // at least 1
int launcher_number_in(std::string_view given);  // of somebody else: 0 if it is no number

}  // namespace weft
