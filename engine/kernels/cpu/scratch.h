// SPDX-License-Identifier: Apache-2.0
#pragma once
// Workspaces that are never freed, so that kernels allocate nothing after the first step.

#include <cstdint>
#include <memory>
#include <new>

namespace weft::cpu {

/// A 64-byte aligned buffer that only grows. Growing discards the contents. Meant for `thread_local` variables.
template <class T> class Scratch {
 public:
  T* at_least(int64_t count) {
    if (count > size_) {
      memory_.reset();
      memory_.reset(static_cast<T*>(::operator new(static_cast<std::size_t>(count) * sizeof(T), alignment)));
      size_ = count;
    }
    return memory_.get();
  }

  const T* data() const { return memory_.get(); }

 private:
  static constexpr std::align_val_t alignment{64};
  struct Release {
    void operator()(T* p) const { ::operator delete(p, alignment); }
  };

  std::unique_ptr<T[], Release> memory_;
  int64_t size_ = 0;
};

}  // namespace weft::cpu
