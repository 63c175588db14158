// A file of bytes with extents, gzipped or not, of at most 64 KiB.
#include "data/idx.h"

#include "tests/fuzz/memory_file.h"

namespace weft::fuzz {

void read(std::string_view bytes) {
  static const MemoryFile place;
  constexpr int64_t most_bytes = 1 << 16;
  place.hold(bytes);
  must(read_idx(place.path(), "", most_bytes).size() <= most_bytes, "no more is read than is allowed");
}

}  // namespace weft::fuzz
