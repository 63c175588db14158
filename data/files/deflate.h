// SPDX-License-Identifier: Apache-2.0
#pragma once
// Unpacking of deflate streams, as they lie in a ZIP archive: without a header of their own.
#include <memory>
#include <vector>

#include "weft/data/files/input_file.h"

struct z_stream_s;  // zlib's

namespace weft {

constexpr int64_t max_deflate_ratio = 1032;  // no deflate stream unpacks to more than this many times its size

// A stream that takes up these bytes of a file. `whose` is for errors.
class DeflateStream {
 public:
  DeflateStream(const InputFile& file, uint64_t first_byte, uint64_t packed_bytes, std::string whose);
  ~DeflateStream();
  DeflateStream(const DeflateStream&) = delete;
  DeflateStream& operator=(const DeflateStream&) = delete;

  void next(void* into, size_t bytes);  // exactly as many
  void end();                           // refuses whatever is left, unpacked or packed

 private:
  size_t unpack(void* into, size_t bytes);  // how many came: fewer only at the end
  void refill();
  [[noreturn]] void malformed(const std::string& what) const;

  const InputFile& file_;
  std::string whose_;
  uint64_t at_, end_;  // what has to be read of the file
  std::vector<unsigned char> packed_;
  std::unique_ptr<z_stream_s> stream_;
  bool ended_ = false;
};

}  // namespace weft
