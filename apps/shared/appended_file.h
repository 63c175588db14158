#pragma once
// A file that grows piece by piece. What was appended is the system's when `append` returns, so it outlives the
// process. A disk that is full is an OutputFailure, and so is a file that
// somebody has removed or moved: what goes there would be lost. A link is not followed.
#include <filesystem>
#include <string_view>

#include "data/descriptor.h"

namespace weft {

class AppendedFile {
 public:
  explicit AppendedFile(std::filesystem::path path, uint64_t kept_bytes = 0);  // of what is there already
  void append(std::string_view bytes);

 private:
  [[noreturn]] void fail_to(const char* what) const;

  std::filesystem::path path_;
  Descriptor file_;
};

}  // namespace weft
