// SPDX-License-Identifier: Apache-2.0
#pragma once
// A file that exists completely or not at all, even if the process or the machine dies. It is written under a temporary
// name in the same folder, and renamed, replacing its predecessor, when all of it is on the disk.
#include <cstdint>
#include <filesystem>

#include "weft/data/files/descriptor.h"
#include "weft/engine/tensor/error.h"

namespace weft {

struct OutputFailure : Error {
  using Error::Error;
};  // the system refused to write: disk full, no permission, ...

class DurableFile {
 public:
  explicit DurableFile(std::filesystem::path place);
  ~DurableFile();  // removes the file if it was not committed
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  void write(uint64_t offset, const void* bytes, size_t count);
  void commit();  // after this the file survives a loss of power

  // Removes the temporary files that killed writers have left in a folder. Files of running writers stay.
  static void sweep(const std::filesystem::path& folder);

 private:
  void drain();

  std::filesystem::path place_, temporary_;
  Descriptor file_;
  size_t in_memory_ = 0;  // bytes that the disk may not have yet
};

// Creates a folder if it does not exist, such that it survives a loss of power.
void make_durable_folder(const std::filesystem::path& folder);

}  // namespace weft
