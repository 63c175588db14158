// SPDX-License-Identifier: Apache-2.0
// An IDX file of bytes, gzipped or not, of at most 64 KiB.
#include "weft/data/idx.h"

#include "tests/fuzz/memory_file.h"

namespace weft::fuzz {

void read(std::string_view bytes) {
  static const MemoryFile place;
  constexpr int64_t max_bytes = 1 << 16;
  place.hold(bytes);
  must(read_idx(place.path(), "", max_bytes).size() <= max_bytes, "no more is read than is allowed");
}

}  // namespace weft::fuzz
