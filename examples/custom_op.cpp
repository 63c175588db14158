// SPDX-License-Identifier: Apache-2.0
// Your own operation: one function checks its inputs, computes the value, and records one pullback per input. Pullbacks
// are written in operations, so they can be differentiated again. The example is the length of a hypotenuse. Prints the
// first and second derivatives beside central differences, and checks that they agree.
#include <cmath>
#include <iostream>

#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/tape/checks.h"
#include "weft/engine/tape/record.h"

using namespace weft;

namespace {

Var hypotenuse(const Var& a, const Var& b);
const Op hypotenuse_op{"hypotenuse", {{"", {{2}, {2}}, [](auto x) { return hypotenuse(x[0], x[1]); }, 0.5, 2}}};

Var hypotenuse(const Var& a, const Var& b) {
  check_floating(hypotenuse_op, a);
  check_same(hypotenuse_op, a, b);
  const Tensor value = sqrt(square(Var(a.value())) + square(Var(b.value()))).value();
  return record(hypotenuse_op, value, from(a, [=](const Var& g, const Var& c) { return g * a / c; }),
                from(b, [=](const Var& g, const Var& c) { return g * b / c; }));
}

struct Derivatives {
  double value, first, second;  // of the sum of the results, with respect to t, which is added to every element
};
Derivatives at(double t) {
  Tape tape;
  const Var a = tape.watch(Tensor::from({2}, {3 + t, 2 + t}, DType::f64));
  const Var b = tape.watch(Tensor::from({2}, {4 + t, 1 + t}, DType::f64));
  const auto derivative = [&](const Var& y) {
    const std::vector<Var> gradients = tape.gradient(y, {a, b}, Graph::create);
    return sum(gradients[0]) + sum(gradients[1]);
  };
  const Var value = sum(hypotenuse(a, b)), first = derivative(value), second = derivative(first);
  return {value.value().item(), first.value().item(), second.value().item()};
}

void check() {
  const double h = 1e-5;
  const Derivatives here = at(0), above = at(h), below = at(-h);
  const double first = (above.value - below.value) / (2 * h), second = (above.first - below.first) / (2 * h);
  std::cout << "first derivative   " << here.first << ", by differences " << first << "\nsecond derivative  "
            << here.second << ", by differences " << second << '\n';
  require(std::abs(here.first - first) < 1e-8, "the first derivative is wrong");
  require(std::abs(here.second - second) < 1e-8, "the second derivative is wrong");
}

}  // namespace

int main() { check(); }
