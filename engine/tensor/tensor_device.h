// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a Tensor needs of its device. Backend (engine/kernels/backend.h) adds the kernels of all operations.
#include "weft/engine/tensor/random.h"
#include "weft/engine/tensor/storage.h"

namespace weft {

class Tensor;

class TensorDevice {
 public:
  virtual ~TensorDevice() = default;

  // Copies are in the order of this rank's other work. When upload or download returns, the caller may reuse or read
  // the host memory.
  virtual Storage* allocate(size_t bytes) = 0;
  virtual void copy(void* to, const void* from, size_t bytes) = 0;      // within the device, or from another card
  virtual void upload(void* to, const void* from, size_t bytes) = 0;    // from the host
  virtual void download(void* to, const void* from, size_t bytes) = 0;  // to the host

  virtual void fill(double value, Tensor& y) = 0;
  virtual void cast(const Tensor& x, Tensor& y) = 0;
  virtual void uniform(Random random, double low, double high, Tensor& y) = 0;  // element i uses draw i
  virtual void normal(Random random, double mean, double deviation, Tensor& y) = 0;
};

TensorDevice& tensor_device(Device device);  // Error if this build or machine has no such device

}  // namespace weft
