#pragma once
// A file that is there whole or not at all, whatever ends the process or the machine. It is written beside its place
// under another name, and takes its place, and its predecessor's, when all of it is on the disk.
#include <cstdint>
#include <filesystem>

#include "data/descriptor.h"
#include "engine/error.h"

namespace weft {

struct OutputFailure : Error {
  using Error::Error;
};  // the system refused to write: disk full, no permission, ...

class DurableFile {
 public:
  explicit DurableFile(std::filesystem::path place);
  ~DurableFile();  // removes what was not committed
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  void write(uint64_t offset, const void* bytes, size_t count);
  void commit();  // after this the file survives a loss of power

  // Removes what writers have left in a folder that were killed; files of writers at work stay.
  static void sweep(const std::filesystem::path& folder);

 private:
  std::filesystem::path place_, temporary_;
  Descriptor file_;
};

// Creates a folder, if need be, such that it survives a loss of power.
void make_durable_folder(const std::filesystem::path& folder);

}  // namespace weft
