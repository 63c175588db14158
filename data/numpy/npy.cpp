// SPDX-License-Identifier: Apache-2.0
#include "weft/data/numpy/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "weft/data/files/durable_file.h"
#include "weft/data/files/json_text.h"  // excerpt
#include "weft/engine/tensor/half.h"

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little, "what is written as little-endian lies so in memory");

constexpr size_t max_dictionary_bytes = 10'000;  // as NumPy has it
constexpr size_t bytes_at_once = size_t{1} << 15;

struct Truth {
  uint8_t byte;
};

// Whether the value has a counterpart. All but the last two always have.
template <class From, class To> bool assign(From value, To& to) {
  to = static_cast<To>(value);
  return true;
}
bool assign(Truth value, uint8_t& to) { return (to = value.byte) <= 1; }
bool assign(uint64_t value, int64_t& to) { return (to = static_cast<int64_t>(value)) >= 0; }

// Converts `count` values, or those before the first that has no counterpart, and returns how many these were.
template <class Stored, class Element> size_t convert(const char* from, size_t count, bool swapped, char* to) {
  for (size_t i = 0; i < count; ++i) {
    std::array<char, sizeof(Stored)> bytes;
    std::memcpy(bytes.data(), from + i * sizeof(Stored), sizeof(Stored));
    if (swapped) std::reverse(bytes.begin(), bytes.end());
    Element value;
    if (!assign(std::bit_cast<Stored>(bytes), value)) return i;
    std::memcpy(to + i * sizeof value, &value, sizeof value);
  }
  return count;
}

struct ElementType {
  std::string_view code;  // a descr without its byte order
  size_t width;
  DType dtype;
  size_t (*convert)(const char* from, size_t count, bool swapped, char* to);
  const char* refusal = "";  // of a value that has no counterpart
};
template <class Stored, class Element> constexpr ElementType element(std::string_view code, const char* refusal = "") {
  return {code, sizeof(Stored), dtype_of<Element>, convert<Stored, Element>, refusal};
}
constexpr std::array element_types = {
    element<float, float>("f4"),
    element<double, double>("f8"),
    element<Half, float>("f2"),
    element<int8_t, int64_t>("i1"),
    element<int16_t, int64_t>("i2"),
    element<int32_t, int64_t>("i4"),
    element<int64_t, int64_t>("i8"),
    element<uint8_t, uint8_t>("u1"),
    element<uint16_t, int64_t>("u2"),
    element<uint32_t, int64_t>("u4"),
    element<uint64_t, int64_t>("u8", "is above 2^63 - 1, the largest i64"),
    element<Truth, uint8_t>("b1", "is neither 0 nor 1, as a bool has to be"),
};

std::string name_of_kind(std::string_view code) {
  constexpr std::pair<char, const char*> kinds[] = {
      {'O', "Python objects"}, {'V', "raw bytes"}, {'c', "complex numbers"}, {'S', "bytes of a text"},
      {'U', "texts"},          {'M', "dates"},     {'m', "durations"}};
  for (const auto& [kind, name] : kinds)
    if (code.starts_with(kind)) return std::string(" (") + name + ")";
  return "";
}

[[noreturn]] void malformed(const NpyStream& stream, const std::string& what) {
  throw MalformedInput(stream.name + ": " + what);
}

const ElementType& element_type(const NpyStream& stream, std::string_view descr) {
  const char order = descr.empty() ? '\0' : descr[0];
  const std::string_view code = descr.substr(descr.empty() ? 0 : 1);
  for (const ElementType& type : element_types)
    if (type.code == code && (order == '<' || order == '>' || (order == '|' && type.width == 1))) return type;
  malformed(stream, "type " + excerpt(descr) + name_of_kind(code) +
                        ", but only f2, f4, f8, i1 to i8, u1 to u8 and b1 behind < or > are supported");
}

struct Preamble {
  NpyHeader header;
  uint64_t bytes;  // of all that is in front of the values
};

Preamble read_preamble(const NpyStream& stream) {
  std::array<unsigned char, 12> start{};
  const auto take = [&](size_t offset, size_t bytes) {
    if (stream.bytes < offset + bytes) malformed(stream, "ends within its header");
    stream.next(start.data() + offset, bytes);
  };
  if (stream.bytes < 6) malformed(stream, "not a .npy file: only " + std::to_string(stream.bytes) + " bytes");
  take(0, 6);
  if (std::memcmp(start.data(), "\x93NUMPY", 6) != 0) malformed(stream, "not a .npy file: it does not begin as one");
  take(6, 2);
  const int major = start[6], minor = start[7];
  if (major < 1 || major > 3 || minor != 0)
    malformed(stream, "version " + std::to_string(major) + "." + std::to_string(minor) +
                          ", but only 1.0, 2.0 and 3.0 " + "are supported");
  const size_t width = major == 1 ? 2 : 4, first = 8 + width;  // of the number that says how long the dictionary is
  take(8, width);
  const uint64_t length = start[8] | start[9] << 8 | start[10] << 16 | uint64_t{start[11]} << 24;
  if (length > max_dictionary_bytes || length > stream.bytes - first)
    malformed(stream, "a header of " + std::to_string(length) + " bytes in " + std::to_string(stream.bytes) +
                          ", but at most " + std::to_string(max_dictionary_bytes) + " are supported");
  std::string text(length, '\0');
  stream.next(text.data(), length);
  return {parse_npy_header(text, stream.name, first), first + length};
}

// The row-major places of values that come in column-major order, whose first axis is the fastest.
class ColumnMajorPlaces {
 public:
  explicit ColumnMajorPlaces(const Shape& shape) : shape_(shape) {
    for (int axis = 0; axis < shape.rank(); ++axis) strides_[axis] = shape.product(axis + 1, shape.rank());
  }
  int64_t next() {
    const int64_t place = place_;
    for (int axis = 0; axis < shape_.rank(); ++axis) {
      place_ += strides_[axis];
      if (++index_[axis] < shape_[axis]) break;
      place_ -= strides_[axis] * std::exchange(index_[axis], 0);
    }
    return place;
  }

 private:
  Shape shape_;
  int64_t strides_[Shape::max_rank] = {}, index_[Shape::max_rank] = {}, place_ = 0;
};

void scatter(const char* from, size_t count, ColumnMajorPlaces& places, Tensor& to) {
  visit(to.dtype(), [&]<class T>() {
    T* values = to.mutate<T>();
    for (size_t i = 0; i < count; ++i) std::memcpy(values + places.next(), from + i * sizeof(T), sizeof(T));
  });
}

Tensor read_values(const NpyStream& stream, const NpyHeader& header, const ElementType& type) {
  Tensor values(header.shape, type.dtype);
  const auto size = static_cast<size_t>(values.size());
  const size_t width = size_of(type.dtype), at_once = std::min(size, bytes_at_once / type.width);
  const bool swapped = header.descr[0] == '>', scattered = header.fortran_order && header.shape.rank() > 1;
  std::vector<char> stored(at_once * type.width), converted(scattered ? at_once * width : 0);
  ColumnMajorPlaces places(header.shape);
  for (size_t at = 0; at < size; at += at_once) {
    const size_t count = std::min(at_once, size - at);
    stream.next(stored.data(), count * type.width);
    char* const to = scattered ? converted.data() : values.mutate<char>() + at * width;
    if (const size_t good = type.convert(stored.data(), count, swapped, to); good < count)
      malformed(stream, "value " + std::to_string(at + good) + " " + type.refusal);
    if (scattered) scatter(converted.data(), count, places, values);
  }
  return values;
}

}  // namespace

Tensor read_npy(const NpyStream& stream) {
  const auto [header, preamble] = read_preamble(stream);
  const ElementType& type = element_type(stream, header.descr);
  const auto size = static_cast<uint64_t>(header.shape.size());
  const uint64_t wanted = size * type.width, there = stream.bytes - preamble;
  if (wanted != there)
    malformed(stream, "the header " + header.descr + " " + text(header.shape) + " promises " + std::to_string(wanted) +
                          " bytes, but " + std::to_string(there) + " follow");
  if (size * size_of(type.dtype) > stream.max_tensor_bytes)
    malformed(stream, "a tensor of " + std::to_string(size * size_of(type.dtype)) + " bytes, but at most " +
                          std::to_string(stream.max_tensor_bytes) + " are allowed");
  return read_values(stream, header, type);
}

Tensor read_npy(const std::filesystem::path& path) {
  const InputFile file(path);
  uint64_t at = 0;
  return read_npy(NpyStream{path.string(), file.bytes(), [&](void* into, size_t bytes) {
                              file.read(at, into, bytes);
                              at += bytes;
                            }});
}

NpyHeader npy_header(const Tensor& tensor, const std::string& whose) {
  require(tensor.defined(), whose, ": the tensor is undefined");
  constexpr std::pair<DType, const char*> types[] = {
      {DType::f32, "<f4"}, {DType::f64, "<f8"}, {DType::i64, "<i8"}, {DType::u8, "|u1"}};
  for (const auto& [dtype, descr] : types)
    if (dtype == tensor.dtype()) return {descr, false, tensor.shape()};
  fail({whose, ": NumPy has no ", text(tensor.dtype()), "; write x.to(DType::f32), which has the same values"});
}

void write_npy(const std::filesystem::path& path, const Tensor& tensor) {
  const std::string header = text(npy_header(tensor, "write_npy: " + path.string()));
  const Tensor host = tensor.to(Device::cpu);
  DurableFile file(path);
  file.write(0, header.data(), header.size());
  file.write(header.size(), host.data(), host.bytes());
  file.commit();
}

}  // namespace weft
