// SPDX-License-Identifier: Apache-2.0
#pragma once
// A file that grows piece by piece. When `append` returns, the system has the bytes, so they outlive the process. A
// full disk is an OutputFailure, and so is a file that was removed or moved, since what is appended would be lost.
// Links are not followed.
#include <filesystem>
#include <string_view>

#include "weft/data/files/descriptor.h"

namespace weft {

class AppendedFile {
 public:
  // Cuts an existing file to its first `kept_bytes`.
  explicit AppendedFile(std::filesystem::path path, uint64_t kept_bytes = 0);
  void append(std::string_view bytes);

 private:
  [[noreturn]] void fail_to(const char* what) const;

  std::filesystem::path path_;
  Descriptor file_;
};

}  // namespace weft
