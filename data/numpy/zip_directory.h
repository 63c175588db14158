// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is in a ZIP archive: the directory at its end, and the header in front of each entry. The rules are stricter
// than the format's, so that no two readers can understand one archive differently: the entries lie one behind the
// other from the first byte on and fill the file, both descriptions of an entry agree, and no name comes twice.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/data/files/input_file.h"

namespace weft {

struct ZipEntry {
  std::string name;
  bool deflated = false;  // else stored as it is
  uint32_t crc = 0;       // CRC-32 of the unpacked bytes
  uint64_t packed_bytes = 0, bytes = 0;
  uint64_t header_byte = 0, first_byte = 0;  // where its header and its packed bytes begin
};

// Entries in the order of the directory. All together may unpack to `max_bytes`.
std::vector<ZipEntry> read_zip_directory(const InputFile& file, uint64_t max_bytes);

// Why an entry may not have this name; empty if it may.
std::string fault_of_zip_name(std::string_view name);

// The header in front of an entry, and the end of an archive that has these entries. All numbers have 64 bits, so that
// there is one way to write them, whatever the sizes.
std::string zip_header(const ZipEntry& entry);
std::string zip_directory(std::span<const ZipEntry> entries, uint64_t first_byte);

}  // namespace weft
