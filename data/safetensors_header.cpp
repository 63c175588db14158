#include "data/safetensors_header.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <tuple>
#include <utility>

#include "data/checksum.h"
#include "data/json_text.h"

namespace weft {
namespace {

constexpr const char* metadata_key = "__metadata__";
constexpr const char* checksum_key = "weft.xxh64";
constexpr std::string_view beginning = "{\"__metadata__\":{\"weft.xxh64\":\"";  // the header's own checksum follows
constexpr size_t digits = 16;
constexpr std::array<std::string_view, 5> dtype_names = {"F32", "F64", "BF16", "I64", "U8"};  // in DType's order

std::string hexadecimal(uint64_t value) {
  std::string result(digits, '0');
  for (size_t i = digits; value > 0; value >>= 4) result[--i] = "0123456789abcdef"[value & 15];
  return result;
}

uint64_t own_checksum(std::string text) {
  text.replace(beginning.size(), digits, digits, '0');
  return checksum(text.data(), text.size());
}

std::string describe(const SafetensorsHeader::Entry& entry) {
  std::string shape;
  for (const int64_t extent : entry.shape) shape.append(shape.empty() ? "" : ",").append(std::to_string(extent));
  return in_quotes(entry.name) + ":{\"dtype\":\"" + std::string(dtype_names[static_cast<size_t>(entry.dtype)]) +
         "\",\"shape\":[" + shape + "],\"data_offsets\":[" + std::to_string(entry.begin) + "," +
         std::to_string(entry.end) + "]}";
}

DType read_dtype(JsonText& json) {
  const std::string name = json.string();
  for (size_t i = 0; i < dtype_names.size(); ++i)
    if (name == dtype_names[i]) return static_cast<DType>(i);
  json.refuse("type " + in_quotes(name) + ", but only F32, F64, BF16, I64 and U8 are supported");
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

SafetensorsHeader::Entry read_entry(JsonText& json, const std::string& name) {
  SafetensorsHeader::Entry entry{name, DType::f32, {}, 0, 0};
  int members = 0;
  json.object([&](const std::string& key) {
    ++members;
    if (key == "dtype")
      entry.dtype = read_dtype(json);
    else if (key == "shape")
      entry.shape = read_shape(json);
    else if (key == "data_offsets")
      std::tie(entry.begin, entry.end) = read_offsets(json);
    else
      json.refuse("tensor " + in_quotes(name) + " has an unknown member " + in_quotes(key));
  });
  const std::string whose = "tensor " + in_quotes(name);
  if (members != 3) json.refuse(whose + " lacks dtype, shape or data_offsets");
  if (entry.end < entry.begin) json.refuse(whose + " ends before it begins");
  if (static_cast<uint64_t>(entry.shape.size()) * size_of(entry.dtype) != entry.end - entry.begin)
    json.refuse(whose + " does not need the " + std::to_string(entry.end - entry.begin) + " bytes that it has");
  return entry;
}

// The tensors have to lie one behind the other and fill the data.
void check_places(const JsonText& json, const SafetensorsHeader& header, uint64_t data_bytes) {
  std::vector<const SafetensorsHeader::Entry*> sorted;
  for (const auto& entry : header.tensors) sorted.push_back(&entry);
  std::sort(sorted.begin(), sorted.end(),
            [](auto* a, auto* b) { return std::pair(a->begin, a->end) < std::pair(b->begin, b->end); });
  uint64_t end = 0;
  for (const auto* entry : sorted) {
    if (entry->begin != end)
      json.refuse("tensor " + in_quotes(entry->name) + " begins at " + std::to_string(entry->begin) +
                  " of the data, not at " + std::to_string(end) + ", where the one before it ends");
    end = entry->end;
  }
  if (end != data_bytes)
    json.refuse("the header promises " + std::to_string(end) + " bytes of data, but " + std::to_string(data_bytes) +
                " follow");
}

// What the text could not be read back from.
void check_names(const SafetensorsHeader& header) {
  std::set<std::string_view> names = {metadata_key};
  for (const auto& entry : header.tensors) {
    require(is_utf8(entry.name), "safetensors: the name ", in_quotes(entry.name), " is not UTF-8");
    require(names.insert(entry.name).second, "safetensors: two tensors are called ", in_quotes(entry.name));
  }
  for (const auto& [key, value] : header.metadata) {
    require(is_utf8(key) && is_utf8(value), "safetensors: the metadata ", in_quotes(key), " are not UTF-8");
    require(key != checksum_key, "safetensors: the metadata ", in_quotes(key), " are for checksums");
  }
}

// Takes the checksums out of the metadata, and checks the header's own.
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
  if (hexadecimal(own_checksum(std::string(text))) != sums.substr(0, digits))
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
  json.object([&](const std::string& name) {
    if (name == metadata_key)
      json.object([&](const std::string& key) { header.metadata[key] = json.string(); });
    else
      header.tensors.push_back(read_entry(json, name));
  });
  json.end();
  take_checksums(json, text, header);
  check_places(json, header, data_bytes);
  return header;
}

}  // namespace weft
