// SPDX-License-Identifier: Apache-2.0
#pragma once
// The header of a safetensors file: JSON that lists the name, type, shape and position of every tensor.
//
// The format has no checksums, so Weft stores them as the first entry of the metadata:
//   {"__metadata__":{"weft.xxh64":"<header> <tensor> <tensor> ...",  ...
// in hexadecimal, in the order in which the header lists the tensors. The header's checksum is computed with zeros in
// place of its own sixteen digits. It covers the other checksums, and thereby the whole file.
#include <string>
#include <string_view>
#include <vector>

#include "weft/engine/tensor/named_tensor.h"

namespace weft {

struct SafetensorsHeader {
  struct Entry {
    std::string name;
    DType dtype;
    Shape shape;
    uint64_t begin, end;  // the range of its bytes after the header
    uint64_t checksum = 0;
    bool half = false;  // F16 in the file, which readers turn into `dtype`, f32

    size_t stored_width() const { return half ? sizeof(uint16_t) : size_of(dtype); }  // of an element, in bytes
  };
  std::vector<Entry> tensors;  // in the order of the header
  Metadata metadata;
  bool checked = false;  // whether the header has checksums
};

// Returns the JSON with checksums, padded to a multiple of 8 bytes. Its length does not depend on the checksums. Error
// if names repeat.
std::string text(const SafetensorsHeader& header);

// Parses a header that must describe exactly the `data_bytes` bytes after it. Verifies the header's checksum if it has
// one. Errors name `file`.
SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t data_bytes, const std::string& file);

}  // namespace weft
