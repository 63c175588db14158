// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/appended_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "weft/data/files/durable_file.h"

namespace weft {

AppendedFile::AppendedFile(std::filesystem::path path, uint64_t kept_bytes)
    : path_(std::move(path)), file_(open_file(path_, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0666)) {
  if (!file_ && errno == ELOOP) throw OutputFailure(path_.string() + ": is a link, which is not followed");
  if (!file_) fail_to("created");
  // What cannot be cut is not a regular file.
  const auto cut = [&] { return ftruncate(file_.number(), static_cast<off_t>(kept_bytes)); };
  if (uninterrupted(cut) != 0 && errno != EINVAL) fail_to("cut");
}

void AppendedFile::append(std::string_view bytes) {
  struct stat mine, there;
  if (stat(path_.c_str(), &there) != 0) fail_to("written any more");
  if (fstat(file_.number(), &mine) != 0 || mine.st_dev != there.st_dev || mine.st_ino != there.st_ino)
    throw OutputFailure(path_.string() + ": another file has replaced it");
  while (!bytes.empty()) {
    const ssize_t done = write(file_.number(), bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_to("written");
    bytes.remove_prefix(static_cast<size_t>(done));
  }
}

void AppendedFile::fail_to(const char* what) const {
  throw OutputFailure(path_.string() + ": cannot be " + what + ": " + std::strerror(errno));
}

}  // namespace weft
