// SPDX-License-Identifier: Apache-2.0
#pragma once
// A bump allocator for a tape, whose records are all freed at once.
#include <cstddef>
#include <vector>

#include "weft/engine/tensor/pool.h"

namespace weft {

class Arena {
 public:
  static constexpr size_t chunk_bytes = size_t{1} << 16, alignment = 16;
  struct Mark {
    size_t chunk = 0, used = 0;
  };

  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() {
    for (char* chunk : chunks_) pool::give(chunk, chunk_bytes);
  }

  // Uninitialised memory for a T. No T may exceed a chunk, or need more alignment than this.
  template <class T>
  requires(sizeof(T) <= chunk_bytes && alignof(T) <= alignment) void* place_for() {
    constexpr size_t bytes = (sizeof(T) + alignment - 1) / alignment * alignment;
    if (chunks_.empty() || top_.used + bytes > chunk_bytes) next_chunk();
    void* result = chunks_[top_.chunk] + top_.used;
    top_.used += bytes;
    return result;
  }
  Mark mark() const { return top_; }
  void rewind(Mark mark) { top_ = mark; }  // objects made since the mark must have been destroyed

 private:
  void next_chunk() {
    const size_t next = chunks_.empty() ? 0 : top_.chunk + 1;
    if (next == chunks_.size()) chunks_.push_back(static_cast<char*>(pool::take(chunk_bytes)));
    top_ = {next, 0};
  }
  std::vector<char*, pool::Allocator<char*>> chunks_;
  Mark top_;
};

}  // namespace weft
