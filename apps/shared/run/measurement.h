// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a step has measured. A card's values are copied to the host while the next step runs.
#include <concepts>
#include <functional>
#include <string>

#include "weft/engine/tensor/tensor.h"

namespace weft {

class Measurement {
 public:
  Measurement(double value) : Measurement([value] { return value; }) {}
  Measurement(const Tensor& scalar);
  template <std::invocable F> Measurement(F number) : number_(std::move(number)) {}  // of a HostCopy
  double value() const { return number_(); }                                         // waits for the copy

 private:
  std::function<double()> number_;
};

struct Measured {
  std::string name;
  Measurement value;
};

}  // namespace weft
