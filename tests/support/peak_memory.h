// SPDX-License-Identifier: Apache-2.0
#pragma once
// The peak of memory in use, counted at allocation: peak_memory.cpp, which must be linked into the program, replaces
// operator new, and the tensors' pool counts its own. zlib's own memory is not counted.
#include <cstdint>

namespace weft {

class PeakMemory {
 public:
  PeakMemory();           // starts here; one at a time
  int64_t bytes() const;  // the peak beyond the memory in use at the start

 private:
  int64_t before_, tensors_before_;
};

}  // namespace weft
