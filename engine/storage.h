#pragma once
// The block of device memory behind one or more Tensors. Counted intrusively: a tensor is made and dropped for every
// op.
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
  std::atomic<uint32_t> version{0};  // goes up when the contents may have changed, so that a tape can notice
  std::atomic<int32_t> references{1};

  Storage(void* data, size_t bytes, Device device, void (*release)(Storage*), void* context = nullptr)
      : data(data), bytes(bytes), release(release), context(context), device(device) {}
};

class StorageHandle {
 public:
  StorageHandle() = default;
  explicit StorageHandle(Storage* adopted) : storage_(adopted) {}
  StorageHandle(const StorageHandle& other) : storage_(other.storage_) {
    if (storage_) storage_->references.fetch_add(1, std::memory_order_relaxed);
  }
  StorageHandle(StorageHandle&& other) noexcept : storage_(other.storage_) { other.storage_ = nullptr; }
  StorageHandle& operator=(StorageHandle other) noexcept {
    Storage* mine = storage_;
    storage_ = other.storage_;
    other.storage_ = mine;
    return *this;
  }
  ~StorageHandle() {
    // A sole owner needs no locked decrement to know that it is the last; most tensors never have another.
    if (storage_ && (storage_->references.load(std::memory_order_acquire) == 1 ||
                     storage_->references.fetch_sub(1, std::memory_order_acq_rel) == 1))
      storage_->release(storage_);
  }
  Storage* operator->() const { return storage_; }
  explicit operator bool() const { return storage_ != nullptr; }
  bool operator==(const StorageHandle& other) const { return storage_ == other.storage_; }

 private:
  Storage* storage_ = nullptr;
};

}  // namespace weft
