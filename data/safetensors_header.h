#pragma once
// The text in front of a safetensors file: JSON that names every tensor, its type, its shape and where its bytes are.
//
// The format has no checksums, so Weft keeps them in the metadata, first of all:
//   {"__metadata__":{"weft.xxh64":"<header> <tensor> <tensor> ...",  ...
// in hexadecimal, in the order in which the header lists the tensors. The header's own is taken of its text with zeros
// for its sixteen digits. It covers the others, so the header's vouches for the whole file.
#include <string>
#include <string_view>
#include <vector>

#include "engine/named.h"

namespace weft {

struct SafetensorsHeader {
  struct Entry {
    std::string name;
    DType dtype;
    Shape shape;
    uint64_t begin, end;  // the place of its bytes behind the header
    uint64_t checksum = 0;
  };
  std::vector<Entry> tensors;  // in the order of the text
  Metadata metadata;
  bool checked = false;  // whether the text had checksums
};

// With checksums: a multiple of 8 bytes, of a length that does not depend on them. Error if names come twice.
std::string text(const SafetensorsHeader& header);

// Accepts nothing but a sound header for exactly `data_bytes` bytes behind it, with its own checksum if it has one.
// `file` is for the error.
SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t data_bytes, const std::string& file);

}  // namespace weft
