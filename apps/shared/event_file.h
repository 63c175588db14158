#pragma once
// Numbers by step as TensorBoard reads them: records of a length, the bytes, and a checksum of each (TFRecord); the
// bytes are a protocol buffer `Event`, of which only the fields for scalars are written.
#include "apps/shared/appended_file.h"

namespace weft {

class EventFile {
 public:
  // Its name must contain "tfevents". `time`: seconds since 1970.
  EventFile(std::filesystem::path path, double time);
  void add(double time, int64_t step, std::string_view tag, double value);

 private:
  void record(const std::string& event);

  AppendedFile file_;
};

uint32_t crc32c(std::string_view bytes);

}  // namespace weft
