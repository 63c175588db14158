// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/tensor/tensor.h"

#include "weft/engine/tensor/origin.h"
#include "weft/engine/tensor/tensor_device.h"

namespace weft {

Tensor::Tensor(const Shape& shape, DType dtype, Device device) : size_(shape.size()), shape_(shape), dtype_(dtype) {
  storage_ = StorageHandle(tensor_device(device).allocate(static_cast<size_t>(size_) * size_of(dtype)));
}

Tensor::Tensor(StorageHandle storage, int64_t first_byte, const Shape& shape, DType dtype)
    : storage_(std::move(storage)), first_byte_(first_byte), size_(shape.size()), shape_(shape), dtype_(dtype) {
  require(first_byte >= 0 && first_byte + bytes() <= storage_->bytes, "tensor: a view of ", bytes(), " bytes at ",
          first_byte, " does not fit into ", storage_->bytes, " bytes");
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor t(shape, dtype, device);
  tensor_device(device).fill(value, t);
  return t;
}

Tensor Tensor::from(const Shape& shape, const std::vector<double>& values, DType dtype, Device device) {
  require(static_cast<int64_t>(values.size()) == shape.size(), "tensor: ", values.size(), " values for shape ", shape);
  Tensor host(shape, dtype);
  visit(dtype, [&]<class T>() {
    T* to = host.mutate<T>();
    for (const double v : values) *to++ = static_cast<T>(static_cast<Compute<T>>(v));
  });
  return host.to(device);
}

Tensor Tensor::arange(int64_t count, DType dtype, Device device) {
  Tensor host({count}, dtype);
  visit(dtype, [&]<class T>() {
    T* to = host.mutate<T>();
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(static_cast<Compute<T>>(i));
  });
  return host.to(device);
}

Tensor Tensor::uniform(const Shape& shape, Random random, double low, double high, DType dtype, Device device) {
  require(is_floating(dtype), "uniform: a floating type is needed, not ", dtype);
  Tensor t(shape, dtype, device);
  tensor_device(device).uniform(random, low, high, t);
  return t;
}

Tensor Tensor::normal(const Shape& shape, Random random, double mean, double deviation, DType dtype, Device device) {
  require(is_floating(dtype), "normal: a floating type is needed, not ", dtype);
  Tensor t(shape, dtype, device);
  tensor_device(device).normal(random, mean, deviation, t);
  return t;
}

Tensor Tensor::reshape(const Shape& shape) const {
  require(shape.size() == size_, "reshape: ", shape_, " holds ", size_, " elements, ", shape, " needs ", shape.size());
  Tensor t = *this;
  t.shape_ = shape;
  return t;
}

Tensor Tensor::slice(int64_t begin, int64_t end) const {
  require(shape_.rank() > 0, "slice: a scalar has no axis 0");
  require(0 <= begin && begin <= end && end <= shape_[0], "slice: rows ", begin, " to ", end, " of ", shape_);
  Tensor t = *this;
  const int64_t row = shape_.product(1, shape_.rank());
  t.first_byte_ += begin * row * static_cast<int64_t>(size_of(dtype_));
  t.shape_ = shape_.with(0, end - begin);
  t.size_ = (end - begin) * row;
  return t;
}

Tensor Tensor::clone() const {
  Tensor t = like(*this);
  t.copy_from(*this);
  return t;
}

Tensor Tensor::to(Device device) const {
  if (device == this->device()) return *this;
  Tensor t(shape_, dtype_, device);
  t.copy_from(*this);
  return t;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  Tensor t(shape_, dtype, device());
  tensor_device(device()).cast(*this, t);
  if (is_floating(dtype)) Origin::set(t, Origin::of(*this));
  return t;
}

void Tensor::copy_from(const Tensor& source) {
  require(source.shape_ == shape_ && source.dtype_ == dtype_, "copy: ", source.dtype_, " ", source.shape_, " into ",
          dtype_, " ", shape_);
  Origin::set(*this, Origin::of(source));
  if (size_ == 0 || data() == source.data()) return;
  const Device from = source.device(), to = device();
  if (from == to) return tensor_device(to).copy(mutate(), source.data(), bytes());
  if (to == Device::cpu) return tensor_device(from).download(mutate(), source.data(), bytes());
  tensor_device(to).upload(mutate(), source.data(), bytes());
}

std::vector<double> Tensor::values() const {
  const Tensor host = to(Device::cpu);
  std::vector<double> result(static_cast<size_t>(size_));
  visit(dtype_, [&]<class T>() {
    const T* from = host.data<T>();
    for (double& v : result) v = static_cast<double>(*from++);
  });
  return result;
}

double Tensor::item() const {
  require(size_ == 1 && defined(), "item: one element is needed, not ", shape_);
  return values()[0];
}

namespace {
constexpr int64_t printed_at_each_end = 3;

void print(const std::vector<double>& values, const Shape& shape, int axis, int64_t first, std::string& out) {
  if (axis == shape.rank()) {
    out += text(values[static_cast<size_t>(first)]);
    return;
  }
  const int64_t extent = shape[axis], stride = shape.product(axis + 1, shape.rank());
  out += '[';
  for (int64_t i = 0; i < extent; ++i) {
    if (i > 0) out += ", ";
    if (extent > 2 * printed_at_each_end && i == printed_at_each_end) {
      out += "..., ";
      i = extent - printed_at_each_end;
    }
    print(values, shape, axis + 1, first + i * stride, out);
  }
  out += ']';
}
}  // namespace

std::string text(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined tensor";
  std::string out = text(tensor.dtype()) + " " + tensor.shape().text() + " on " + text(tensor.device()) + " ";
  if (tensor.size() == 0) return out + "[]";
  print(tensor.values(), tensor.shape(), 0, 0, out);
  return out;
}

}  // namespace weft
