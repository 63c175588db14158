// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  try {
    weft::fuzz::read({reinterpret_cast<const char*>(bytes), count});
  } catch (const weft::Error&) {  // as a reader should
  }
  return 0;
}
