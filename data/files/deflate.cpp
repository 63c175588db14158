// SPDX-License-Identifier: Apache-2.0
#include "weft/data/files/deflate.h"

#include <zlib.h>

#include <algorithm>
#include <new>

namespace weft {
namespace {

constexpr uint64_t packed_piece = uint64_t{1} << 14;  // bytes read at once
constexpr size_t unpacked_piece = size_t{1} << 30;    // bytes that zlib can count
constexpr int raw_deflate = -15;                      // no header, a window of up to 2^15 bytes

}  // namespace

DeflateStream::DeflateStream(const InputFile& file, uint64_t first_byte, uint64_t packed_bytes, std::string whose)
    : file_(file),
      whose_(std::move(whose)),
      at_(first_byte),
      end_(first_byte + packed_bytes),
      packed_(std::min(packed_piece, packed_bytes)),
      stream_(std::make_unique<z_stream>()) {
  if (inflateInit2(stream_.get(), raw_deflate) != Z_OK) throw std::bad_alloc();
}

DeflateStream::~DeflateStream() { inflateEnd(stream_.get()); }

void DeflateStream::next(void* into, size_t bytes) {
  if (const size_t came = unpack(into, bytes); came < bytes)
    malformed("the deflate stream ends " + std::to_string(bytes - came) + " bytes before what the directory promises");
}

void DeflateStream::end() {
  char beyond;
  if (unpack(&beyond, 1) > 0) malformed("the deflate stream goes on behind what the directory promises");
  if (const uint64_t left = end_ - at_ + stream_->avail_in; left > 0)
    malformed(std::to_string(left) + " bytes follow the deflate stream");
}

size_t DeflateStream::unpack(void* into, size_t bytes) {
  stream_->next_out = static_cast<unsigned char*>(into);
  size_t left = bytes;
  while (left > 0 && !ended_) {
    if (stream_->avail_in == 0) refill();
    const size_t ask = std::min(left, unpacked_piece);
    stream_->avail_out = static_cast<unsigned>(ask);
    const int code = inflate(stream_.get(), Z_NO_FLUSH);
    left -= ask - stream_->avail_out;
    ended_ = code == Z_STREAM_END;
    if (code == Z_MEM_ERROR) throw std::bad_alloc();
    if (code == Z_BUF_ERROR && at_ == end_) malformed("the deflate stream is cut");
    if (code != Z_OK && code != Z_BUF_ERROR && !ended_)
      malformed(std::string("the deflate stream is corrupt: ") +
                (stream_->msg ? stream_->msg : "a dictionary is needed"));
  }
  return bytes - left;
}

void DeflateStream::refill() {
  const uint64_t bytes = std::min<uint64_t>(packed_.size(), end_ - at_);
  file_.read(at_, packed_.data(), bytes);
  at_ += bytes;
  stream_->next_in = packed_.data();
  stream_->avail_in = static_cast<unsigned>(bytes);
}

void DeflateStream::malformed(const std::string& what) const { throw MalformedInput(whose_ + ": " + what); }

}  // namespace weft
