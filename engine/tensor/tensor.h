// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Tensor is plain data: a shared, contiguous, row-major block of one element type on one device. It has no gradient.
// Copying a Tensor shares the block; clone() copies the values.
#include <string>
#include <vector>

#include "weft/engine/tensor/dtype.h"
#include "weft/engine/tensor/random.h"
#include "weft/engine/tensor/shape.h"
#include "weft/engine/tensor/storage.h"

namespace weft {

class Tensor {
 public:
  Tensor() = default;                                                                          // undefined
  explicit Tensor(const Shape& shape, DType dtype = DType::f32, Device device = Device::cpu);  // values not set
  Tensor(StorageHandle storage, int64_t first_byte, const Shape& shape,
         DType dtype);  // a view of memory made elsewhere
  static Tensor full(const Shape& shape, double value, DType dtype = DType::f32, Device device = Device::cpu);
  static Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = Device::cpu) {
    return full(shape, 0, dtype, device);
  }
  static Tensor like(const Tensor& x) { return Tensor(x.shape_, x.dtype_, x.device()); }  // values not set
  static Tensor from(const Shape& shape, const std::vector<double>& values, DType dtype = DType::f32,
                     Device device = Device::cpu);
  static Tensor arange(int64_t count, DType dtype = DType::i64, Device device = Device::cpu);
  static Tensor uniform(const Shape& shape, Random random, double low = 0, double high = 1, DType dtype = DType::f32,
                        Device device = Device::cpu);
  static Tensor normal(const Shape& shape, Random random, double mean = 0, double deviation = 1,
                       DType dtype = DType::f32, Device device = Device::cpu);

  bool defined() const { return static_cast<bool>(storage_); }
  const Shape& shape() const { return shape_; }
  int64_t size() const { return size_; }
  size_t bytes() const { return static_cast<size_t>(size_) * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return storage_ ? storage_->device : Device::cpu; }

  template <class T = void> const T* data() const { return reinterpret_cast<const T*>(address()); }
  // Write access. It changes the version, so that tapes which still need the old values detect the change.
  template <class T = void> T* mutate() {
    // A load and a store suffice, because only one thread may write at a time. A locked increment costs more than a
    // small kernel.
    storage_->version.store(version() + 1, std::memory_order_relaxed);
    return reinterpret_cast<T*>(address());
  }
  uint32_t version() const { return storage_ ? storage_->version.load(std::memory_order_relaxed) : 0; }
  bool unshared() const { return storage_ && storage_->unshared(); }
  bool shares_memory_with(const Tensor& other) const { return storage_ == other.storage_; }

  Tensor reshape(const Shape& shape) const;        // a view; the sizes must agree
  Tensor slice(int64_t begin, int64_t end) const;  // a view of rows begin..end-1 along axis 0
  Tensor clone() const;
  Tensor to(Device device) const;        // this tensor itself if it is on that device already
  Tensor to(DType dtype) const;          // rounded to nearest even; f to i truncates
  void copy_from(const Tensor& source);  // same shape and dtype, any device

  std::vector<double> values() const;  // a host copy, for tests and logs
  double item() const;                 // the value of a one-element tensor

 private:
  friend struct Origin;

  char* address() const { return storage_ ? static_cast<char*>(storage_->data) + first_byte_ : nullptr; }

  StorageHandle storage_;
  int64_t first_byte_ = 0;
  int64_t size_ = 0;
  Shape shape_;
  DType dtype_ = DType::f32;
  uint32_t origin_ = 0;  // which tape the values come from; only origin.h knows what it means
};

// "f32 (2, 3) on cpu [[1, 2, 3], [4, 5, 6]]", long axes shortened in the middle.
std::string text(const Tensor& tensor);

}  // namespace weft
