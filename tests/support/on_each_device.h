// SPDX-License-Identifier: Apache-2.0
#pragma once
// A fixture for tests of ops that runs a test on each available device in turn, with small tensors there.
#include "tests/support/catch.h"
#include "weft/engine/kernels/backend.h"
#include "weft/engine/ops/ops.h"

namespace weft {

using Values = std::vector<double>;

struct OnEachDevice {
  Device device;
  OnEachDevice() : device(GENERATE(filter(available, values({Device::cpu, Device::cuda})))) {}

  Tensor f64(const Shape& shape, const Values& values) const { return Tensor::from(shape, values, DType::f64, device); }
  Tensor i64(const Shape& shape, const Values& values) const { return Tensor::from(shape, values, DType::i64, device); }
  Tensor full(const Shape& shape, double value) const { return Tensor::full(shape, value, DType::f64, device); }
  Tensor empty(const Shape& shape) const { return full(shape, 0); }  // for shapes without elements
  Tensor counted(const Shape& shape) const { return Tensor::arange(shape.size(), DType::f64, device).reshape(shape); }
  Tensor random(const Shape& shape, uint64_t stream = 0) const {
    return Tensor::normal(shape, {5, stream}, 0, 1, DType::f64, device);
  }
};

inline Values values_of(const Var& x) { return x.value().values(); }

// The largest difference between corresponding elements.
inline double distance(const Var& a, const Var& b) {
  REQUIRE(a.shape() == b.shape());
  return a.size() == 0 ? 0 : max(abs(a - b)).value().item();
}

// The gradient of sum(g f(x)) with respect to x.
template <class F> Tensor gradient_of(F f, const Tensor& x, const Tensor& g) {
  Tape tape;
  const Var leaf = tape.watch(x);
  return tape.gradient(f(leaf), Var(g), {leaf})[0].value();  // a Var would outlive its tape
}

}  // namespace weft
