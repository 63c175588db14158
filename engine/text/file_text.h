// SPDX-License-Identifier: Apache-2.0
#pragma once
// The text of a file: at most its first `max_bytes`. Empty if the file cannot be read.
#include <filesystem>
#include <limits>
#include <string>

namespace weft {

std::string file_text(const std::filesystem::path& file, size_t max_bytes = std::numeric_limits<size_t>::max());

}  // namespace weft
