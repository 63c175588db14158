// SPDX-License-Identifier: Apache-2.0
#pragma once
// A regular file opened for reading, and what readers throw. It stays readable when its name is given to another file.
#include <cstdint>
#include <filesystem>
#include <string>

#include "weft/data/files/descriptor.h"
#include "weft/engine/tensor/error.h"

namespace weft {

struct MissingInput : Error {
  using Error::Error;
};  // a file or folder that is not there
struct MalformedInput : Error {
  using Error::Error;
};  // one that is not what it should be

class InputFile {
 public:
  explicit InputFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }  // when it was opened
  void read(uint64_t offset, void* into, size_t bytes) const;
  [[noreturn]] void malformed(const std::string& what) const;

 private:
  std::filesystem::path path_;
  Descriptor file_;
  uint64_t bytes_ = 0;
};

}  // namespace weft
