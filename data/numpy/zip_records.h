// SPDX-License-Identifier: Apache-2.0
#pragma once
// The records of a ZIP archive, as they lie in a file. zip_directory.h says what an archive holds.
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace weft::zip {

static_assert(std::endian::native == std::endian::little, "the numbers of a ZIP archive are little-endian");

constexpr uint16_t method_stored = 0, method_deflated = 8;
constexpr uint16_t flag_encrypted = 1 << 0, flag_sizes_follow = 1 << 3, flag_utf8 = 1 << 11;
constexpr uint16_t flags_of_effort = 1 << 1 | 1 << 2;  // how hard deflate tried
constexpr uint16_t zip64_version = 45, zip64_tag = 1;
constexpr uint16_t earliest_date = 1 << 5 | 1;  // the first of January 1980
// A number that does not fit its field stands in a 64-bit record, and its field holds this.
constexpr uint16_t wide_16 = 0xffff;
constexpr uint32_t wide_32 = 0xffffffff;

// The format leaves no room between the fields of a record.
#pragma pack(push, 1)
struct Description {
  uint16_t version, flags, method, time, date;
  uint32_t crc, packed_bytes, bytes;
  uint16_t name_bytes, extra_bytes;
};
struct Header {
  static constexpr uint32_t sign = 0x04034b50;
  uint32_t mark;
  Description description;
};
struct DirectoryEntry {
  static constexpr uint32_t sign = 0x02014b50;
  uint32_t mark;
  uint16_t made_by;
  Description description;
  uint16_t comment_bytes, disk, inner_attributes;
  uint32_t outer_attributes, header_byte;
};
struct End {
  static constexpr uint32_t sign = 0x06054b50;
  uint32_t mark;
  uint16_t disk, directory_disk, entries_here, entries;
  uint32_t bytes, first_byte;
  uint16_t comment_bytes;
};
struct End64 {
  static constexpr uint32_t sign = 0x06064b50;
  uint32_t mark;
  uint64_t rest_bytes;
  uint16_t made_by, version;
  uint32_t disk, directory_disk;
  uint64_t entries_here, entries, bytes, first_byte;
};
struct End64Locator {
  static constexpr uint32_t sign = 0x07064b50;
  uint32_t mark, disk;
  uint64_t end64_byte;
  uint32_t disks;
};
struct Zip64Field {
  uint16_t tag, field_bytes;
  uint64_t bytes, packed_bytes, header_byte;
};
#pragma pack(pop)
constexpr uint32_t sizes_mark = 0x08074b50;  // may stand in front of sizes that follow an entry
constexpr uint64_t tag_bytes = 4;            // in front of an extra field
constexpr uint64_t counted_bytes = sizeof(End64) - sizeof(End64::mark) - sizeof(End64::rest_bytes);
static_assert(sizeof(Header) == 30 && sizeof(DirectoryEntry) == 46 && sizeof(End) == 22 && sizeof(End64) == 56 &&
              sizeof(End64Locator) == 20 && sizeof(Zip64Field) == tag_bytes + 24);

template <class T> T record_in(std::string_view bytes) {
  T record;
  std::memcpy(&record, bytes.data(), sizeof record);
  return record;
}
template <class T> std::string text_of(const T& record) {
  return {reinterpret_cast<const char*>(&record), sizeof record};
}

}  // namespace weft::zip
