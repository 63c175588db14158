// SPDX-License-Identifier: Apache-2.0
#pragma once
// An exclusive lock of a folder for one process, held until the object or the process ends, on network disks, too. On a
// file system without locks, the lock file itself is one: then a process that was killed leaves it behind, and another
// one takes it only if it can see that the first is gone.
#include <filesystem>
#include <string>

#include "weft/data/files/descriptor.h"

namespace weft {

class FolderLock {
 public:
  // Locks a folder, which must exist. If another process has the lock, holder() names it: "process 71 on elm, since
  // 2026-01-31 18:02".
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(FolderLock&&) = default;
  FolderLock& operator=(FolderLock&&) = default;

  const std::string& holder() const { return holder_; }  // empty if this process has the lock
  // Call it after the folder has been renamed.
  void folder_is_now(const std::filesystem::path& folder) { place_ = folder / name; }

  static constexpr const char* name = "lock";  // of the lock file in the folder

 private:
  std::filesystem::path place_;
  Descriptor file_;
  std::string holder_;
};

}  // namespace weft
