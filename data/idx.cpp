// SPDX-License-Identifier: Apache-2.0
#include "weft/data/idx.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <vector>

#include "weft/data/files/deflate.h"  // max_deflate_ratio

namespace weft {
namespace {

constexpr int max_rank = 4;
constexpr int byte_type = 0x08;  // IDX's code for unsigned bytes

// A reader of a file that may be gzipped.
class Unpacker {
 public:
  Unpacker(const std::filesystem::path& file, const std::string& hint) : name_(file.string()) {
    std::error_code error;
    if (!std::filesystem::exists(file, error))
      throw MissingInput(name_ + ": no such file" + (hint.empty() ? "" : "; " + hint));
    if (!std::filesystem::is_regular_file(file, error)) throw MalformedInput(name_ + ": not a file");
    packed_bytes_ = static_cast<int64_t>(std::filesystem::file_size(file, error));
    stream_ = gzopen(name_.c_str(), "rb");
    if (!stream_) throw MissingInput(name_ + ": cannot be opened: " + std::strerror(errno));
    gzbuffer(stream_, static_cast<unsigned>(std::clamp<int64_t>(packed_bytes_, 1 << 12, 1 << 18)));
  }
  ~Unpacker() { gzclose_r(stream_); }
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  // Returns the number of bytes read, which is less than requested only at a valid end of the file.
  int64_t read(void* to, int64_t bytes) {
    int64_t done = 0;
    while (done < bytes) {
      const auto request = static_cast<unsigned>(std::min<int64_t>(bytes - done, 1 << 30));
      const int got = gzread(stream_, static_cast<char*>(to) + done, request);
      if (got <= 0) break;
      done += got;
    }
    int code = Z_OK;
    std::string text = gzerror(stream_, &code);
    if (text.starts_with(name_ + ": ")) text.erase(0, name_.size() + 2);
    if (code == Z_BUF_ERROR) malformed("the gzip stream ends too early; the file is truncated");
    if (code != Z_OK) malformed("the gzip stream is corrupt: " + (code == Z_ERRNO ? std::strerror(errno) : text));
    return done;
  }
  int64_t max_bytes() const { return packed_bytes_ * max_deflate_ratio; }
  [[noreturn]] void malformed(const std::string& what) const { throw MalformedInput(name_ + ": " + what); }

 private:
  std::string name_;
  int64_t packed_bytes_ = 0;
  gzFile stream_ = nullptr;
};

// Returns the shape in the header. Error if it has more than `max_bytes` elements.
Shape read_header(Unpacker& file, int64_t max_bytes) {
  std::array<uint8_t, 4> magic;
  if (file.read(magic.data(), 4) < 4 || magic[0] != 0 || magic[1] != 0)
    file.malformed("not an IDX file (it must begin with two zero bytes)");
  if (magic[2] != byte_type)
    file.malformed("IDX type " + std::to_string(magic[2]) + ", but only 8, unsigned bytes, is supported");
  const int rank = magic[3];
  if (rank < 1 || rank > max_rank)
    file.malformed("IDX rank " + std::to_string(rank) + ", but 1 to " + std::to_string(max_rank) + " are supported");

  std::array<uint8_t, 4 * max_rank> bytes;
  if (file.read(bytes.data(), 4 * rank) < 4 * rank) file.malformed("the file ends within its header");
  std::vector<int64_t> extents;
  int64_t size = 1;
  for (int i = 0; i < rank; ++i) {
    const uint8_t* b = &bytes[4 * i];
    extents.push_back(int64_t{b[0]} << 24 | b[1] << 16 | b[2] << 8 | b[3]);
    if (!Shape::fits(extents) || (size *= extents.back()) > max_bytes)
      file.malformed("the header promises more than " + std::to_string(max_bytes) + " bytes");
  }
  return Shape(extents);
}

}  // namespace

Tensor read_idx(const std::filesystem::path& path, const std::string& hint, int64_t max_bytes) {
  Unpacker file(path, hint);
  const Shape shape = read_header(file, std::min(max_bytes, file.max_bytes()));
  Tensor values(shape, DType::u8);
  const int64_t got = file.read(values.mutate(), values.size());
  if (got < values.size()) {
    file.malformed("the header " + text(shape) + " promises " + std::to_string(values.size()) + " bytes, but only " +
                   std::to_string(got) + " follow");
  }
  char beyond;
  if (file.read(&beyond, 1) > 0)
    file.malformed("bytes follow after the " + std::to_string(got) + " that the header " + text(shape) + " promises");
  return values;
}

int idx_rank(const std::filesystem::path& path) {
  try {
    Unpacker file(path, "");
    std::array<uint8_t, 4> magic;
    const bool is_idx = file.read(magic.data(), 4) == 4 && magic[0] == 0 && magic[1] == 0 && magic[2] == byte_type;
    return is_idx && magic[3] <= max_rank ? magic[3] : 0;
  } catch (const Error&) {  // not gzip either
    return 0;
  }
}

}  // namespace weft
