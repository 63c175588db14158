// SPDX-License-Identifier: Apache-2.0
#pragma once
// How much memory something takes at its worst, counted where the program asks for it: peak_memory.cpp, which has to be
// in the program, replaces operator new; Tensors' pool counts its own. What zlib takes for itself is not counted.
#include <cstdint>

namespace weft {

class PeakMemory {
 public:
  PeakMemory();           // from here on; one at a time
  int64_t bytes() const;  // the most that was there at once, beyond what was there at the beginning

 private:
  int64_t before_, tensors_before_;
};

}  // namespace weft
