#include "apps/shared/file_text.h"

#include <algorithm>
#include <fstream>

namespace weft {

std::string file_text(const std::filesystem::path& file, size_t most_bytes) {
  constexpr size_t piece = size_t{1} << 16;  // memory follows what is there, not what is allowed
  std::ifstream stream(file, std::ios::binary);
  std::string text;
  while (stream && text.size() < most_bytes) {
    const size_t have = text.size(), ask = std::min(piece, most_bytes - have);
    text.resize(have + ask);
    stream.read(text.data() + have, static_cast<std::streamsize>(ask));
    text.resize(have + static_cast<size_t>(stream.gcount()));
  }
  return text;
}

}  // namespace weft
