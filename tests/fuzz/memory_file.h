// SPDX-License-Identifier: Apache-2.0
#pragma once
// A file with a path but no disk, for readers that take a path. One object holds one text after the other.
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "tests/fuzz/target.h"

namespace weft::fuzz {

class MemoryFile {
 public:
  MemoryFile() : file_(memfd_create("weft-fuzz", MFD_CLOEXEC)) { must(file_ >= 0, "there is a file in memory"); }
  ~MemoryFile() { close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  void hold(std::string_view bytes) const {
    const auto count = static_cast<ssize_t>(bytes.size());
    must(ftruncate(file_, count) == 0 && pwrite(file_, bytes.data(), bytes.size(), 0) == count, "the file takes bytes");
  }
  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

}  // namespace weft::fuzz
