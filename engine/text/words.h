// SPDX-License-Identifier: Apache-2.0
#pragma once
// Numbers, lines and pages of text for people.
#include <cstdint>
#include <string>

namespace weft {

std::string grouped(int64_t number);             // "12,345"
std::string short_number(double number);         // "98.9k", "1.23M", "0.2495": four digits at most
std::string exact_number(double number);         // "0.1", "1e-09": the fewest digits that give the same number again
std::string bytes_in_words(double bytes);        // "12.3 MiB"
std::string duration(double seconds);            // "4.2 s", "0:42", "1:02:03"
std::string percent(double part, double whole);  // "4 %"
std::string percent(double part);                // "87.60 %"

// Breaks lines after at most `most` characters. The rest continues below, indented to the last column of text.
std::string wrapped(const std::string& text, size_t most);

// Text as it is written in HTML, also in attributes.
std::string as_html(const std::string& text);

}  // namespace weft
