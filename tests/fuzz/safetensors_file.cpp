// SPDX-License-Identifier: Apache-2.0
// A whole file, as from another program: accepted files can be read, and consist of data only.
#include "weft/data/files/safetensors.h"

#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/sound_sums.h"

namespace weft::fuzz {

void read(std::string_view bytes) {
  static const MemoryFile place;
  place.hold(with_sound_sums(bytes));
  const SafetensorsFile file(place.path());
  uint64_t data = 0;
  for (const auto& entry : file.tensors()) data += file.read(entry.name).bytes();
  file.verify();
  must(data < 2 * bytes.size(), "tensors have at most twice the bytes of their file");
}

}  // namespace weft::fuzz
