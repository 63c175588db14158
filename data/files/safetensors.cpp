// SPDX-License-Identifier: Apache-2.0
#include "weft/data/files/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "weft/data/files/checksum.h"
#include "weft/data/files/durable_file.h"
#include "weft/data/files/json_text.h"
#include "weft/engine/tensor/finite.h"
#include "weft/engine/tensor/half.h"

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and so are Tensors");

constexpr uint64_t max_header_bytes = 100'000'000;  // the limit of the reference implementation
constexpr size_t piece =
    size_t{1} << 20;  // bytes read or written at once; small enough to be in the cache for the checksum
static_assert(piece % Checksum::stripe == 0);

// Assigns the positions. Tensors with larger elements come first, so that all are aligned for readers that map the
// file.
SafetensorsHeader lay_out(std::span<const TensorOutline> tensors, const Metadata& metadata) {
  SafetensorsHeader header{{}, metadata};
  for (const auto& [name, dtype, shape] : tensors)
    header.tensors.push_back({name, dtype, shape, 0, static_cast<uint64_t>(shape.size()) * size_of(dtype)});
  uint64_t end = 0;
  for (const size_t width : {8, 4, 2, 1}) {
    for (auto& entry : header.tensors) {
      if (size_of(entry.dtype) != width) continue;
      entry.begin += end;
      end = entry.end += end;
    }
  }
  return header;
}

// Returns the checksum.
uint64_t write_tensor(DurableFile& file, uint64_t offset, const Tensor& tensor) {
  const Tensor host = tensor.to(Device::cpu);
  Checksum sum;
  for (size_t at = 0; at < host.bytes(); at += piece) {
    const size_t bytes = std::min(piece, host.bytes() - at);
    sum.add(host.data<char>() + at, bytes);
    file.write(offset + at, host.data<char>() + at, bytes);
  }
  return sum.value();
}

// Numbers in f16 as f32. `to` may begin as many bytes before `from` as both differ by.
void widen(const char* from, int64_t count, char* to) {
  for (int64_t i = 0; i < count; ++i) {
    Half half;
    std::memcpy(&half, from + i * 2, sizeof half);
    const float value = half;
    std::memcpy(to + i * 4, &value, sizeof value);
  }
}

}  // namespace

std::vector<TensorOutline> outlines(std::span<const NamedTensor> tensors) {
  std::vector<TensorOutline> result;
  for (const auto& [name, tensor] : tensors) {
    require(tensor.defined(), "safetensors: tensor ", excerpt(name), " is undefined");
    result.push_back({name, tensor.dtype(), tensor.shape()});
  }
  return result;
}

void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const Metadata& metadata) {
  const auto get = [&](size_t i) { return tensors[i].tensor; };
  write_safetensors(path, outlines(tensors), get, metadata);
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorOutline> tensors,
                       const TensorSource& get, const Metadata& metadata) {
  SafetensorsHeader header = lay_out(tensors, metadata);
  const uint64_t length = text(header).size();
  require(length <= max_header_bytes, "write_safetensors: a header of ", length, " bytes is too long");

  DurableFile file(path);
  for (size_t i = 0; i < tensors.size(); ++i) {
    auto& entry = header.tensors[i];
    const Tensor tensor = get(i);
    require(tensor.defined() && tensor.dtype() == entry.dtype && tensor.shape() == entry.shape,
            "write_safetensors: ", excerpt(entry.name), " is ", tensor.dtype(), " ", tensor.shape(), ", not ",
            entry.dtype, " ", entry.shape);
    entry.checksum = write_tensor(file, sizeof length + length + entry.begin, tensor);
  }
  file.write(0, &length, sizeof length);
  file.write(sizeof length, text(header).data(), length);
  file.commit();
}

SafetensorsFile::SafetensorsFile(std::filesystem::path path) : file_(std::move(path)) {
  uint64_t length = 0;
  if (file_.bytes() < sizeof length)
    file_.malformed("not a safetensors file: only " + std::to_string(file_.bytes()) + " bytes");
  file_.read(0, &length, sizeof length);
  if (length > std::min(max_header_bytes, file_.bytes() - sizeof length))
    file_.malformed("a header of " + std::to_string(length) + " bytes in a file of " + std::to_string(file_.bytes()));
  std::string header(length, '\0');
  file_.read(sizeof length, header.data(), length);
  first_byte_ = sizeof length + length;
  header_ = parse_safetensors_header(header, file_.bytes() - first_byte_, file_.path().string());

  by_name_.resize(tensors().size());
  std::iota(by_name_.begin(), by_name_.end(), size_t{0});
  std::sort(by_name_.begin(), by_name_.end(),
            [&](size_t a, size_t b) { return tensors()[a].name < tensors()[b].name; });
}

const std::string& SafetensorsFile::metadata(const std::string& key) const {
  const auto found = metadata().find(key);
  if (found == metadata().end()) file_.malformed("the metadata have no " + excerpt(key));
  return found->second;
}

const SafetensorsFile::Entry* SafetensorsFile::find(const std::string& name) const {
  const auto place = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [&](size_t i, const std::string& x) { return tensors()[i].name < x; });
  return place != by_name_.end() && tensors()[*place].name == name ? &tensors()[*place] : nullptr;
}

Tensor SafetensorsFile::read(const std::string& name) const {
  const Entry* entry = find(name);
  if (!entry) file_.malformed("there is no tensor " + excerpt(name));
  Tensor result(entry->shape, entry->dtype);
  read(*entry, result);
  return result;
}

void SafetensorsFile::read(const Entry& entry, Tensor& into) const {
  require(into.defined() && into.dtype() == entry.dtype && into.shape() == entry.shape, path().string(), ": ",
          excerpt(entry.name), " is ", entry.dtype, " ", entry.shape, ", not ", into.dtype(), " ", into.shape());
  if (into.device() != Device::cpu) return into.copy_from(read(entry.name));
  char* first = into.mutate<char>();
  // What is half as long goes to the upper half, from where it is widened.
  char* const stored = first + into.bytes() - (entry.end - entry.begin);
  read_bytes(entry, [stored](uint64_t at) { return stored + at; });
  if (entry.half) widen(stored, into.size(), first);
}

void SafetensorsFile::read(const Entry& entry, int64_t first, int64_t count, void* into) const {
  const auto bytes = static_cast<size_t>(count) * entry.stored_width();
  char* const stored = static_cast<char*>(into) + static_cast<size_t>(count) * size_of(entry.dtype) - bytes;
  file_.read(first_byte_ + entry.begin + static_cast<uint64_t>(first) * entry.stored_width(), stored, bytes);
  if (entry.half) widen(stored, count, static_cast<char*>(into));
}

void SafetensorsFile::verify(bool finite) const {
  uint64_t largest = 0;
  for (const Entry& entry : tensors()) largest = std::max(largest, entry.end - entry.begin);
  std::vector<char> scratch(std::min<uint64_t>(piece, largest));
  for (const Entry& entry : tensors()) {
    const uint64_t width = entry.stored_width(), bytes = entry.end - entry.begin;
    const auto expect_finite = [&](uint64_t at) {
      const auto count = static_cast<int64_t>(std::min<uint64_t>(piece, bytes - at) / width);
      std::vector<float> widened(entry.half ? static_cast<size_t>(count) : 0);
      if (entry.half) widen(scratch.data(), count, reinterpret_cast<char*>(widened.data()));
      const void* values = entry.half ? static_cast<const void*>(widened.data()) : scratch.data();
      if (const auto place = first_not_finite(values, count, entry.dtype))
        file_.malformed("tensor " + excerpt(entry.name) + ", element " +
                        text(static_cast<int64_t>(at / width) + *place) +
                        ", is not finite; it was saved by a run that had failed");
    };
    read_bytes(entry, [&](uint64_t at) {
      if (finite && at > 0) expect_finite(at - piece);
      return scratch.data();
    });
    if (finite && bytes > 0) expect_finite((bytes - 1) / piece * piece);
  }
}

void SafetensorsFile::read_bytes(const Entry& entry, const std::function<char*(uint64_t)>& place) const {
  const uint64_t first = first_byte_ + entry.begin, count = entry.end - entry.begin;
  Checksum sum;
  for (uint64_t at = 0; at < count; at += piece) {
    const size_t bytes = std::min<uint64_t>(piece, count - at);
    char* here = place(at);
    file_.read(first + at, here, bytes);
    sum.add(here, bytes);
  }
  if (checked() && sum.value() != entry.checksum)
    file_.malformed("tensor " + excerpt(entry.name) + ", bytes " + std::to_string(first) + " to " +
                    std::to_string(first + count) + ", does not have its checksum; the file is damaged");
}

}  // namespace weft
