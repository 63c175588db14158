// SPDX-License-Identifier: Apache-2.0
#pragma once
// bf16 is for storage only. Kernels compute in float; these classes convert their inputs and outputs.
#include "weft/engine/tensor/pool.h"
#include "weft/engine/tensor/tensor.h"

namespace weft::cpu {

constexpr int64_t values_in_l1 = 512;  // few enough to stay in L1 between two passes over them

template <class To, class From> void convert(int64_t n, const From* x, To* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<To>(static_cast<Compute<To>>(static_cast<Compute<From>>(x[i])));
}

// Pooled memory for a scope.
template <class T> class Temporary {
 public:
  explicit Temporary(int64_t count)
      : bytes_(static_cast<size_t>(count) * sizeof(T)), data_(static_cast<T*>(pool::take(bytes_))) {}
  ~Temporary() { pool::give(data_, bytes_); }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  operator T*() const { return data_; }

 private:
  size_t bytes_;
  T* data_;
};

// An input of a kernel: the values of a tensor, or a float copy of bf16 values.
template <class T> class Input {
 public:
  explicit Input(const Tensor& x) : data_(x.data<T>()) {}
  operator const T*() const { return data_; }

 private:
  const T* data_;
};
template <> class Input<BFloat16> {
 public:
  explicit Input(const Tensor& x) : data_(x.size()) { convert<float>(x.size(), x.data<BFloat16>(), data_); }
  operator const float*() const { return data_; }

 private:
  Temporary<float> data_;
};

// An output of a kernel. bf16 values are rounded at the end of the scope. The kernel must write every value.
template <class T> class Output {
 public:
  explicit Output(Tensor& y) : data_(y.mutate<T>()) {}
  operator T*() const { return data_; }

 private:
  T* data_;
};
template <> class Output<BFloat16> {
 public:
  explicit Output(Tensor& y) : y_(y), data_(y.size()) {}
  ~Output() { convert<BFloat16>(y_.size(), static_cast<const float*>(data_), y_.mutate<BFloat16>()); }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  operator float*() const { return data_; }

 private:
  Tensor& y_;
  Temporary<float> data_;
};

}  // namespace weft::cpu
