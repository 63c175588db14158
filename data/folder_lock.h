#pragma once
// A folder that one process has to itself, for as long as the object lives and no longer than the process does, on
// network disks too. Where a file system has no locks, everybody has it.
#include <filesystem>
#include <string>

#include "data/descriptor.h"

namespace weft {

class FolderLock {
 public:
  // Of a folder that exists. If another process has it, `holder` says which: "process 71 on elm, since 2026-01-31
  // 18:02".
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(FolderLock&&) = default;
  FolderLock& operator=(FolderLock&&) = default;

  const std::string& holder() const { return holder_; }  // empty: this process
  void folder_is_now(const std::filesystem::path& folder) { place_ = folder / name; }

  static constexpr const char* name = "lock";  // of the file in the folder

 private:
  std::filesystem::path place_;
  Descriptor file_;
  std::string holder_;
};

}  // namespace weft
