// SPDX-License-Identifier: Apache-2.0
// A .npz file that may unpack to eight times its size plus 64 KiB: accepted arrays stay within that.
#include "weft/data/numpy/npz.h"

#include "tests/fuzz/memory_file.h"

namespace weft::fuzz {

void read(std::string_view bytes) {
  static const MemoryFile place;
  constexpr uint64_t max_bytes = 1 << 16;
  place.hold(bytes);
  const NpzFile file(place.path(), max_bytes);
  for (const std::string& name : file.names())
    must(file.read(name).bytes() <= max_bytes + 8 * bytes.size(), "no more is unpacked than is allowed");
}

}  // namespace weft::fuzz
