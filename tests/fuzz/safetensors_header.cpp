// SPDX-License-Identifier: Apache-2.0
// The header of a file with 64 bytes of data: accepted headers can be written and read again.
#include "weft/data/files/safetensors_header.h"

#include "tests/fuzz/target.h"

namespace weft::fuzz {
namespace {

constexpr uint64_t data_bytes = 64;

bool same(const SafetensorsHeader& a, const SafetensorsHeader& b) {
  if (a.metadata != b.metadata || a.tensors.size() != b.tensors.size()) return false;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const auto &x = a.tensors[i], &y = b.tensors[i];
    if (x.name != y.name || x.dtype != y.dtype || x.half != y.half || x.shape != y.shape || x.begin != y.begin ||
        x.end != y.end)
      return false;
  }
  return true;
}

}  // namespace

void read(std::string_view bytes) {
  const SafetensorsHeader header = parse_safetensors_header(bytes, data_bytes, "header");
  const std::string written = text(header);
  must(same(header, must_be_accepted([&] { return parse_safetensors_header(written, data_bytes, "header again"); })),
       "a header is read as written");
}

}  // namespace weft::fuzz
