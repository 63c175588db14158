// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which bytes of a block of the pool are in use, for tools that read NVTX: compute-sanitizer reports accesses beyond
// them. Without a tool, a call is a test of a pointer.
#include <cstddef>

namespace weft::cuda {

class UsedBytes {
 public:
  UsedBytes(const void* block, size_t capacity);  // none of them
  ~UsedBytes();
  UsedBytes(const UsedBytes&) = delete;

  void begin(size_t bytes) const;
  void end() const;

 private:
  const void* const block_;
  void* handle_;
};

}  // namespace weft::cuda
