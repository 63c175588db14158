// SPDX-License-Identifier: Apache-2.0
// A .npy file: accepted files stay within the memory limit, and are read back after writing.
#include "weft/data/numpy/npy.h"

#include "tests/data/checkpoint_checks.h"
#include "tests/fuzz/memory_file.h"

namespace weft::fuzz {

void read(std::string_view bytes) {
  static const MemoryFile place;
  place.hold(bytes);
  const Tensor values = read_npy(place.path());
  must(values.bytes() <= 8 * bytes.size(), "a tensor takes at most eight times its file");
  place.hold(text(npy_header(values, "fuzz")) + std::string(values.data<char>(), values.bytes()));
  must(same_bits(must_be_accepted([] { return read_npy(place.path()); }), values), "a tensor is read as written");
}

}  // namespace weft::fuzz
