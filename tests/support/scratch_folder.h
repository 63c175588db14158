// SPDX-License-Identifier: Apache-2.0
#pragma once
// A folder that is removed with its test.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace weft {

struct ScratchFolder {
  std::filesystem::path path;

  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "weft_test_XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~ScratchFolder() { std::filesystem::remove_all(path); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return path / name; }
};

inline std::string contents(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline void put(const std::filesystem::path& file, const std::string& bytes) {
  std::filesystem::remove(file);  // some file systems sync an overwritten file
  std::ofstream(file, std::ios::binary) << bytes;
}

}  // namespace weft
