// SPDX-License-Identifier: Apache-2.0
// What a file says of its encoder, a word in each line as key=value: accepted descriptions can be written and read
// again.
#include <sstream>

#include "apps/shared/encoder/description.h"
#include "tests/fuzz/target.h"

namespace weft::fuzz {

void read(std::string_view bytes) {
  std::istringstream lines{std::string(bytes)};
  Metadata words;
  for (std::string line; std::getline(lines, line);)
    if (const size_t end = line.find('='); end != std::string::npos) words[line.substr(0, end)] = line.substr(end + 1);
  const Metadata written = in_words(encoder_in(words, "file"));
  const auto again = must_be_accepted([&] { return encoder_in(written, "file"); });
  must(in_words(again) == written, "a description is read as written");
}

}  // namespace weft::fuzz
