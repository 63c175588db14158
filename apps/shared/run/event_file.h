// SPDX-License-Identifier: Apache-2.0
#pragma once
// Scalars by step in TensorBoard's format. A record (TFRecord) is a length, its checksum, bytes, and their checksum.
// The bytes are a protocol buffer `Event`; only its fields for scalars are written.
#include <vector>

#include "apps/shared/run/appended_file.h"

namespace weft {

struct Value {
  std::string name;
  double value;
};

class EventFile {
 public:
  // The file name must contain "tfevents". `time`: seconds since 1970.
  EventFile(std::filesystem::path path, double time);
  void add(double time, int64_t step, const std::vector<Value>& values);

 private:
  AppendedFile file_;
};

uint32_t crc32c(std::string_view bytes);

}  // namespace weft
