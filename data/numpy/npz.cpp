// SPDX-License-Identifier: Apache-2.0
#include "weft/data/numpy/npz.h"

#include <zlib.h>

#include <algorithm>
#include <optional>

#include "weft/data/files/deflate.h"
#include "weft/data/files/durable_file.h"
#include "weft/data/files/json_text.h"  // excerpt

namespace weft {
namespace {

constexpr std::string_view array_suffix = ".npy";
constexpr uint64_t max_growth = 8;  // times the file

uint32_t crc_of(uint32_t before, const void* bytes, size_t count) {
  return static_cast<uint32_t>(crc32_z(before, static_cast<const unsigned char*>(bytes), count));
}

ZipEntry write_array(DurableFile& file, uint64_t at, const NamedTensor& array) {
  const std::string preamble = text(npy_header(array.tensor, "write_npz: array " + excerpt(array.name)));
  const Tensor host = array.tensor.to(Device::cpu);
  ZipEntry entry{array.name + std::string(array_suffix), false, crc_of(0, preamble.data(), preamble.size())};
  entry.crc = crc_of(entry.crc, host.data(), host.bytes());
  entry.bytes = entry.packed_bytes = preamble.size() + host.bytes();
  entry.header_byte = at;
  const std::string head = zip_header(entry) + preamble;
  entry.first_byte = at + head.size() - preamble.size();
  file.write(at, head.data(), head.size());
  file.write(at + head.size(), host.data(), host.bytes());
  return entry;
}

void check_names(std::span<const NamedTensor> arrays) {
  std::vector<std::string_view> names;
  for (const auto& [name, tensor] : arrays) {
    const std::string fault = fault_of_zip_name(name + std::string(array_suffix));
    require(fault.empty(), "write_npz: array ", excerpt(name), ": ", fault);
    names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  const auto second = std::adjacent_find(names.begin(), names.end());
  require(second == names.end(), "write_npz: two arrays are called ", second == names.end() ? "" : excerpt(*second));
}

}  // namespace

void write_npz(const std::filesystem::path& path, std::span<const NamedTensor> arrays) {
  check_names(arrays);
  DurableFile file(path);
  std::vector<ZipEntry> entries;
  uint64_t at = 0;
  for (const NamedTensor& array : arrays) {
    entries.push_back(write_array(file, at, array));
    at = entries.back().first_byte + entries.back().bytes;
  }
  const std::string directory = zip_directory(entries, at);
  file.write(at, directory.data(), directory.size());
  file.commit();
}

NpzFile::NpzFile(std::filesystem::path path, uint64_t max_bytes)
    : file_(std::move(path)),
      max_bytes_(max_growth * file_.bytes() + max_bytes),
      arrays_(read_zip_directory(file_, max_bytes_)) {
  for (ZipEntry& array : arrays_) {
    if (!array.name.ends_with(array_suffix)) file_.malformed("entry " + excerpt(array.name) + ": it is no .npy");
    array.name.resize(array.name.size() - array_suffix.size());
  }
  std::sort(arrays_.begin(), arrays_.end(), [](auto& a, auto& b) { return a.name < b.name; });
}

std::vector<std::string> NpzFile::names() const {
  std::vector<std::string> names;
  for (const ZipEntry& array : arrays_) names.push_back(array.name);
  return names;
}

Tensor NpzFile::read(const std::string& name) const {
  const auto array =
      std::lower_bound(arrays_.begin(), arrays_.end(), name, [](auto& a, auto& x) { return a.name < x; });
  if (array == arrays_.end() || array->name != name) file_.malformed("there is no array " + excerpt(name));
  const std::string whose = path().string() + ": array " + excerpt(name);

  std::optional<DeflateStream> packed;
  if (array->deflated) packed.emplace(file_, array->first_byte, array->packed_bytes, whose);
  uint64_t at = array->first_byte;
  uint32_t crc = 0;
  const auto next = [&](void* into, size_t bytes) {
    if (packed) {
      packed->next(into, bytes);
    } else {
      file_.read(at, into, bytes);
      at += bytes;
    }
    crc = crc_of(crc, into, bytes);
  };
  Tensor result = read_npy(NpyStream{whose, array->bytes, next, max_bytes_});
  if (packed) packed->end();
  if (crc != array->crc) throw MalformedInput(whose + ": does not have its checksum; the file is damaged");
  return result;
}

}  // namespace weft
