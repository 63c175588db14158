// SPDX-License-Identifier: Apache-2.0
#pragma once
// Captions of pictures from a CSV file, whose first line names its columns, or from a JSONL file, with an object in
// each line. The columns or members are the picture's file (file_name, file, filename, image or path) and its caption
// (caption, text or sentence). A picture may have several captions, each in a line of its own.
#include <filesystem>
#include <string>
#include <vector>

namespace weft {

struct Caption {
  std::string file, text;
};

std::vector<Caption> read_captions(const std::filesystem::path& file);  // MalformedInput names the line

}  // namespace weft
