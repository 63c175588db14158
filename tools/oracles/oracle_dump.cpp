// SPDX-License-Identifier: Apache-2.0
// Writes the samples of every op as JSON for tools/oracles/torch_ops.py: inputs, output, seed, and the gradients of
// <seed, output> with respect to each input, in f64. Numbers have enough digits to be read back as the same double.
#include <iomanip>
#include <iostream>
#include <limits>

#include "weft/engine/tape/op.h"
#include "weft/engine/tape/tape.h"

namespace weft {
namespace {

template <class Range, class Print> void print_list(const Range& range, Print print) {
  const char* separator = "[";
  for (const auto& each : range) {
    std::cout << separator;
    print(each);
    separator = ", ";
  }
  std::cout << (*separator == '[' ? "[]" : "]");
}

void print(const Tensor& tensor) {
  const auto number = [](auto value) { std::cout << value; };
  std::cout << "{\"shape\": ";
  print_list(tensor.shape(), number);
  std::cout << ", \"values\": ";
  print_list(tensor.values(), number);
  std::cout << "}";
}

void print(const Op& op, const Sample& sample) {
  Tape tape;
  std::vector<Var> inputs;
  uint64_t stream = 0;
  for (const Shape& shape : sample.shapes)
    inputs.push_back(tape.watch(Tensor::uniform(shape, {11, stream++}, sample.low, sample.high, DType::f64)));
  const Var output = sample.call(inputs);
  const Tensor seed = Tensor::uniform(output.shape(), {12}, -1, 1, DType::f64);
  const auto each = [](const Var& v) { print(v.value()); };

  std::cout << "\n{\"op\": " << std::quoted(op.name) << ", \"label\": " << std::quoted(sample.label)
            << ", \"inputs\": ";
  print_list(inputs, each);
  std::cout << ", \"output\": ";
  print(output.value());
  std::cout << ", \"seed\": ";
  print(seed);
  std::cout << ", \"gradients\": ";
  print_list(tape.gradient(output, Var(seed), inputs), each);
  std::cout << "}";
}

}  // namespace
}  // namespace weft

int main() {
  using namespace weft;
  std::cout << std::setprecision(std::numeric_limits<double>::max_digits10);
  print_list(Op::all(),
             [](const Op* op) { print_list(op->samples, [&](const Sample& sample) { print(*op, sample); }); });
  std::cout << "\n";
}
