// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/text/file_text.h"

#include <algorithm>
#include <fstream>

namespace weft {

std::string file_text(const std::filesystem::path& file, size_t max_bytes) {
  constexpr size_t piece = size_t{1} << 16;  // memory grows with the file, not with the limit
  std::string text;
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return text;  // a named pipe would be waited for
  std::ifstream stream(file, std::ios::binary);
  while (stream && text.size() < max_bytes) {
    const size_t have = text.size(), ask = std::min(piece, max_bytes - have);
    text.resize(have + ask);
    stream.read(text.data() + have, static_cast<std::streamsize>(ask));
    text.resize(have + static_cast<size_t>(stream.gcount()));
  }
  return text;
}

}  // namespace weft
