// SPDX-License-Identifier: Apache-2.0
#include "weft/data/files/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace weft {

InputFile::InputFile(std::filesystem::path path) : path_(std::move(path)) {
  file_ = open_file(path_, O_RDONLY | O_NONBLOCK);
  if (!file_) throw MissingInput(path_.string() + ": cannot be opened: " + std::strerror(errno));
  struct stat state;
  if (fstat(file_.number(), &state) != 0 || !S_ISREG(state.st_mode)) malformed("not a file");
  bytes_ = static_cast<uint64_t>(state.st_size);
}

void InputFile::read(uint64_t offset, void* into, size_t bytes) const {
  auto* next = static_cast<char*>(into);
  while (bytes > 0) {
    const ssize_t got = pread(file_.number(), next, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) malformed("byte " + std::to_string(offset) + ": cannot be read: " + std::strerror(errno));
    if (got == 0)
      malformed("byte " + std::to_string(offset) + ": the file ends here; it was longer when it was opened");
    next += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
}

void InputFile::malformed(const std::string& what) const { throw MalformedInput(path_.string() + ": " + what); }

}  // namespace weft
