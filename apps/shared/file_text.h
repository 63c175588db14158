#pragma once
// The text of a file that a run has left. Of one that is longer than `most_bytes` the beginning; empty where there is
// none that can be read.
#include <filesystem>
#include <limits>
#include <string>

namespace weft {

std::string file_text(const std::filesystem::path& file, size_t most_bytes = std::numeric_limits<size_t>::max());

}  // namespace weft
