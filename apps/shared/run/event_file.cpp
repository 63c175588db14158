// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/event_file.h"

#include <array>
#include <bit>
#include <string>

namespace weft {
namespace {

constexpr std::array<uint32_t, 256> crc_table = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    table[i] = i;
    for (int bit = 0; bit < 8; ++bit) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0x82f63b78u : 0);
  }
  return table;
}();

// The format masks checksums, so that the checksum of bytes that contain a checksum is not trivial.
uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8u; }

template <class T> std::string little_endian(T value) {
  static_assert(std::endian::native == std::endian::little);
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// The parts of protocol buffers that are needed. A field is its number and kind, then its value.
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
constexpr uint64_t a_varint = 0, eight_bytes = 1, counted_bytes = 2, four_bytes = 5;
std::string key(uint64_t field, uint64_t kind) { return varint(field << 3 | kind); }
std::string field(uint64_t number, std::string_view bytes) {
  return key(number, counted_bytes) + varint(bytes.size()) + std::string(bytes);
}
std::string field(uint64_t number, double value) { return key(number, eight_bytes) + little_endian(value); }
std::string field(uint64_t number, float value) { return key(number, four_bytes) + little_endian(value); }
std::string field(uint64_t number, uint64_t value) { return key(number, a_varint) + varint(value); }

std::string record(const std::string& event) {
  const std::string length = little_endian(uint64_t{event.size()});
  return length + little_endian(masked_crc(length)) + event + little_endian(masked_crc(event));
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes) crc = crc_table[(crc ^ static_cast<unsigned char>(byte)) & 0xff] ^ crc >> 8;
  return ~crc;
}

EventFile::EventFile(std::filesystem::path path, double time) : file_(std::move(path)) {
  file_.append(record(field(1, time) + field(3, "brain.Event:2")));  // every file begins with the version
}

void EventFile::add(double time, int64_t step, const std::vector<Value>& values) {
  std::string records;
  for (const auto& [name, value] : values) {
    const std::string scalar = field(1, name) + field(2, static_cast<float>(value));
    records += record(field(1, time) + field(2, static_cast<uint64_t>(step)) + field(5, field(1, scalar)));
  }
  file_.append(records);
}

}  // namespace weft
