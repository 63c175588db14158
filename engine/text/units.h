// SPDX-License-Identifier: Apache-2.0
#pragma once
// Times and rates as people write them: "50us", "1.5ms", "100Mbit", "12.5GB". An Error says what is wrong.
#include <string>

namespace weft {

double parsed_seconds(const std::string& text);
double parsed_bytes_per_second(const std::string& text);

std::string in_seconds(double seconds);                   // "50us": parsed_seconds reads it again
std::string in_bits_per_second(double bytes_per_second);  // "100Mbit"

}  // namespace weft
