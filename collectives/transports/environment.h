// SPDX-License-Identifier: Apache-2.0
#pragma once
// Numbers in environment variables. A value of one of Weft's own variables that is no such number is a Fault with the
// exit code of a wrong command line.
#include <chrono>
#include <string_view>

#include "weft/collectives/transports/message_cost.h"

namespace weft {

std::chrono::milliseconds seconds_in(std::string_view variable, std::string_view given);  // from 0.001 to 1e6
Link link_in(std::string_view variable, std::string_view given);                          // as parsed_link
int ranks_in(std::string_view variable, std::string_view given);                          // at least 1
bool switch_in(std::string_view variable, std::string_view given);                        // 1 or 0
int launcher_number_in(std::string_view given);  // from a launcher's variable: 0 if it is no number

}  // namespace weft
