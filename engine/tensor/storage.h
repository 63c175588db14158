// SPDX-License-Identifier: Apache-2.0
#pragma once
// The block of device memory behind one or more Tensors. The reference count is in the block, because every op makes
// and destroys tensors.
#include <sys/single_threaded.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace weft {

enum class Device : uint8_t { cpu, cuda };
inline std::string text(Device device) { return device == Device::cpu ? "cpu" : "cuda"; }

struct Storage {
  void* data;
  size_t bytes;
  void (*release)(Storage*);  // called by the last owner
  void* context = nullptr;    // for `release`
  Device device;
  std::atomic<uint32_t> version{0};  // increases when the contents may have changed, so that a tape can detect it
  std::atomic<const char*> collective{nullptr};  // see origin.h

  Storage(void* data, size_t bytes, Device device, void (*release)(Storage*), void* context = nullptr)
      : data(data), bytes(bytes), release(release), context(context), device(device) {}

  void retain() { count(1); }
  void drop() {
    // A sole owner needs no locked decrement to know that it is the last. Most tensors never have a second owner.
    if (unshared() || count(-1) == 1) release(this);
  }
  // Prepares the block for its next use from a pool.
  void renew(size_t bytes_now) {
    bytes = bytes_now;
    version = 0;
    references_ = 1;
  }
  bool unshared() const { return references_.load(std::memory_order_acquire) == 1; }

 private:
  // Changes the number of references and returns the previous one. Locked additions took a fifth of a small training
  // step, so a program with a single thread uses none.
  int32_t count(int32_t change) {
    if (!__libc_single_threaded) return references_.fetch_add(change, std::memory_order_acq_rel);
    const int32_t before = references_.load(std::memory_order_relaxed);
    references_.store(before + change, std::memory_order_relaxed);
    return before;
  }

  std::atomic<int32_t> references_{1};
};

class StorageHandle {
 public:
  StorageHandle() = default;
  explicit StorageHandle(Storage* adopted) : storage_(adopted) {}
  StorageHandle(const StorageHandle& other) : storage_(other.storage_) {
    if (storage_) storage_->retain();
  }
  StorageHandle(StorageHandle&& other) noexcept : storage_(other.storage_) { other.storage_ = nullptr; }
  StorageHandle& operator=(StorageHandle other) noexcept {
    Storage* mine = storage_;
    storage_ = other.storage_;
    other.storage_ = mine;
    return *this;
  }
  ~StorageHandle() {
    if (storage_) storage_->drop();
  }
  Storage* operator->() const { return storage_; }
  explicit operator bool() const { return storage_ != nullptr; }
  bool operator==(const StorageHandle& other) const { return storage_ == other.storage_; }

 private:
  Storage* storage_ = nullptr;
};

}  // namespace weft
