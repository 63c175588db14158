// SPDX-License-Identifier: Apache-2.0
#include "weft/data/files/safetensors_header.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <tuple>
#include <utility>

#include "weft/data/files/checksum.h"
#include "weft/data/files/json_text.h"

namespace weft {
namespace {

constexpr const char* metadata_key = "__metadata__";
constexpr const char* checksum_key = "weft.xxh64";
constexpr std::string_view beginning = "{\"__metadata__\":{\"weft.xxh64\":\"";  // the header's own checksum follows
constexpr size_t digits = 16;
constexpr size_t max_words = 1 << 14;    // of metadata; each takes about a hundred bytes of memory, even if it is short
constexpr size_t min_tensor_bytes = 50;  // in the header: "":{"dtype":"U8","shape":[],"data_offsets":[0,1]},
constexpr std::array<std::string_view, 5> dtype_names = {"F32", "F64", "BF16", "I64", "U8"};  // in DType's order
constexpr std::string_view half_name = "F16";

std::string hexadecimal(uint64_t value) {
  std::string result(digits, '0');
  for (size_t i = digits; value > 0; value >>= 4) result[--i] = "0123456789abcdef"[value & 15];
  return result;
}

// The checksum of a header that begins as Weft writes it. A copy of the first stripes has zeros for the checksum's
// digits.
uint64_t own_checksum(std::string_view text) {
  constexpr size_t head_bytes = 2 * Checksum::stripe;
  static_assert(beginning.size() + digits <= head_bytes);
  std::string head(text.substr(0, head_bytes));
  head.replace(beginning.size(), digits, digits, '0');
  Checksum sum;
  sum.add(head.data(), head.size());
  text.remove_prefix(head.size());
  if (!text.empty()) sum.add(text.data(), text.size());
  return sum.value();
}

std::string describe(const SafetensorsHeader::Entry& entry) {
  std::string shape;
  for (const int64_t extent : entry.shape) shape.append(shape.empty() ? "" : ",").append(std::to_string(extent));
  const std::string_view dtype = entry.half ? half_name : dtype_names[static_cast<size_t>(entry.dtype)];
  return in_quotes(entry.name) + ":{\"dtype\":\"" + std::string(dtype) + "\",\"shape\":[" + shape +
         "],\"data_offsets\":[" + std::to_string(entry.begin) + "," + std::to_string(entry.end) + "]}";
}

void read_dtype(JsonText& json, SafetensorsHeader::Entry& entry) {
  const std::string name = json.string();
  entry.half = name == half_name;
  entry.dtype = DType::f32;
  if (entry.half) return;
  for (size_t i = 0; i < dtype_names.size(); ++i)
    if (name == dtype_names[i]) return void(entry.dtype = static_cast<DType>(i));
  json.refuse("type " + excerpt(name) + ", but only F32, F64, BF16, F16, I64 and U8 are supported");
}

Shape read_shape(JsonText& json) {
  std::vector<int64_t> extents;
  json.array([&] {
    const uint64_t extent = json.number();
    if (!std::in_range<int64_t>(extent)) json.refuse("an extent of " + std::to_string(extent));
    if (extents.size() == Shape::max_rank) json.refuse("more than " + std::to_string(Shape::max_rank) + " axes");
    extents.push_back(static_cast<int64_t>(extent));
  });
  if (!Shape::fits(extents)) json.refuse("a shape that is too large");
  return Shape(extents);
}

std::pair<uint64_t, uint64_t> read_offsets(JsonText& json) {
  std::vector<uint64_t> offsets;
  json.array([&] {
    offsets.push_back(json.number());
    if (offsets.size() > 2) json.refuse("data_offsets needs two numbers");
  });
  if (offsets.size() != 2) json.refuse("data_offsets needs two numbers");
  return {offsets[0], offsets[1]};
}

SafetensorsHeader::Entry read_entry(JsonText& json, std::string name) {
  SafetensorsHeader::Entry entry{std::move(name), DType::f32, {}, 0, 0};
  const std::string whose = "tensor " + excerpt(entry.name);
  json.object(whose, {{"dtype", [&] { read_dtype(json, entry); }},
                      {"shape", [&] { entry.shape = read_shape(json); }},
                      {"data_offsets", [&] { std::tie(entry.begin, entry.end) = read_offsets(json); }}});
  if (entry.end < entry.begin) json.refuse(whose + " ends before it begins");
  if (static_cast<uint64_t>(entry.shape.size()) * entry.stored_width() != entry.end - entry.begin)
    json.refuse(whose + " does not need the " + std::to_string(entry.end - entry.begin) + " bytes that it has");
  return entry;
}

void read_metadata(JsonText& json, Metadata& metadata) {
  json.object([&](std::string key) {
    const auto [place, is_new] = metadata.try_emplace(std::move(key));
    if (!is_new) json.refuse_second(place->first);
    if (metadata.size() > max_words) json.refuse("more than " + std::to_string(max_words) + " words of metadata");
    place->second = json.string();
  });
}

void check_names_differ(const JsonText& json, const SafetensorsHeader& header) {
  std::vector<std::string_view> names;
  names.reserve(header.tensors.size());
  for (const auto& entry : header.tensors) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  if (const auto second = std::adjacent_find(names.begin(), names.end()); second != names.end())
    json.refuse_second(*second);
}

// The tensors must be contiguous and fill the data.
void check_places(const JsonText& json, const SafetensorsHeader& header, uint64_t data_bytes) {
  std::vector<const SafetensorsHeader::Entry*> sorted;
  sorted.reserve(header.tensors.size());
  for (const auto& entry : header.tensors) sorted.push_back(&entry);
  std::sort(sorted.begin(), sorted.end(),
            [](auto* a, auto* b) { return std::pair(a->begin, a->end) < std::pair(b->begin, b->end); });
  uint64_t end = 0;
  for (const auto* entry : sorted) {
    if (entry->begin != end)
      json.refuse("tensor " + excerpt(entry->name) + " begins at " + std::to_string(entry->begin) +
                  " of the data, not at " + std::to_string(end) + ", where the one before it ends");
    end = entry->end;
  }
  if (end != data_bytes)
    json.refuse("the header promises " + std::to_string(end) + " bytes of data, but " + std::to_string(data_bytes) +
                " follow");
}

// Refuses names and metadata that could not be parsed again.
void check_names(const SafetensorsHeader& header) {
  std::set<std::string_view> names = {metadata_key};
  for (const auto& entry : header.tensors) {
    require(is_utf8(entry.name), "safetensors: the name ", in_quotes(entry.name), " is not UTF-8");
    require(names.insert(entry.name).second, "safetensors: two tensors are called ", in_quotes(entry.name));
  }
  require(header.metadata.size() < max_words, "safetensors: ", header.metadata.size(),
          " words of metadata, but at most ", max_words - 1, " are supported");
  for (const auto& [key, value] : header.metadata) {
    require(is_utf8(key) && is_utf8(value), "safetensors: the metadata ", in_quotes(key), " are not UTF-8");
    require(key != checksum_key, "safetensors: the metadata ", in_quotes(key), " are for checksums");
  }
}

// Moves the checksums from the metadata to the entries, and verifies the header's checksum.
void take_checksums(const JsonText& json, std::string_view text, SafetensorsHeader& header) {
  const auto found = header.metadata.find(checksum_key);
  if (found == header.metadata.end()) return;
  const std::string sums = std::move(found->second);
  header.metadata.erase(found);
  header.checked = true;

  if (!text.starts_with(beginning) || sums.size() != (header.tensors.size() + 1) * (digits + 1) - 1)
    json.refuse("the checksums are not where Weft puts them; the file is damaged, or another program has changed it");
  const auto sum = [&](size_t i) {
    uint64_t value = 0;
    const char* first = sums.data() + i * (digits + 1);
    std::from_chars(first, first + digits, value, 16);
    return value;
  };
  if (hexadecimal(own_checksum(text)) != sums.substr(0, digits))
    json.refuse("the header does not have its checksum; the file is damaged");
  for (size_t i = 0; i < header.tensors.size(); ++i) header.tensors[i].checksum = sum(i + 1);
}

}  // namespace

std::string text(const SafetensorsHeader& header) {
  check_names(header);
  std::string result(beginning);
  result.append(digits, '0');
  for (const auto& entry : header.tensors) result += " " + hexadecimal(entry.checksum);
  result += '"';
  for (const auto& [key, value] : header.metadata) result += "," + in_quotes(key) + ":" + in_quotes(value);
  result += '}';
  for (const auto& entry : header.tensors) result += "," + describe(entry);
  result += '}';
  result.resize((result.size() + 7) / 8 * 8, ' ');
  return result.replace(beginning.size(), digits, hexadecimal(own_checksum(result)));
}

SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t data_bytes, const std::string& file) {
  JsonText json(text, file, sizeof(uint64_t));
  if (!text.starts_with('{')) json.refuse("not a safetensors file: its header does not begin with '{'");
  SafetensorsHeader header;
  header.tensors.reserve(text.size() / min_tensor_bytes);
  bool has_metadata = false;
  json.object([&](std::string name) {
    if (name != metadata_key) return header.tensors.push_back(read_entry(json, std::move(name)));
    if (std::exchange(has_metadata, true)) json.refuse_second(name);
    read_metadata(json, header.metadata);
  });
  json.end();
  check_names_differ(json, header);
  take_checksums(json, text, header);
  check_places(json, header, data_bytes);
  return header;
}

}  // namespace weft
