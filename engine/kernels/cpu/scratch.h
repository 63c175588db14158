// SPDX-License-Identifier: Apache-2.0
#pragma once
// Workspaces that are never freed, so that kernels allocate nothing after the first step.

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "weft/engine/tensor/pool.h"

namespace weft::cpu {

/// A 64-byte aligned buffer that only grows. Growing discards the contents. Meant for `thread_local` variables.
template <class T> class Scratch {
 public:
  T* at_least(int64_t count) {
    if (count > size_) {
      memory_.reset();
      memory_.reset(static_cast<T*>(pool::from_system(static_cast<std::size_t>(count) * sizeof(T))));
      size_ = count;
    }
    return memory_.get();
  }

  const T* data() const { return memory_.get(); }

 private:
  struct Release {
    void operator()(T* p) const { std::free(p); }
  };

  std::unique_ptr<T[], Release> memory_;
  int64_t size_ = 0;
};

}  // namespace weft::cpu
