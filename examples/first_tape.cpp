// SPDX-License-Identifier: Apache-2.0
// A tape lists operations in the order in which they run, and backward walks the list from its end. Prints the tape of
// y = sum(w * x + w * w), on one rank: each node with its value and below it its cotangent, the gradient of y with
// respect to that node. w is used three times, so its cotangent has three terms: x + w + w. Checks that against central
// differences.
#include <cmath>

#include "weft/collectives/checks/print_tapes.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;

namespace {

const Tensor x = Tensor::from({2}, {10, 20}, DType::f64);

Var y_of(const Var& w, Tape& tape) {
  const Var product = w * tape.constant(x), square = w * w;
  return sum(product + square);
}

double y_at(const Tensor& w) {
  Tape tape;
  return y_of(tape.watch(w), tape).value().item();
}

void look() {
  const Parameter w("w", Tensor::from({2}, {3, -1}, DType::f64));
  Tape tape;
  const TapeLog log(tape);
  Gradients gradients;
  tape.backward(y_of(tape.watch(w), tape), gradients);
  print(tape);

  constexpr double h = 1e-3;
  for (int64_t i = 0; i < 2; ++i) {
    Tensor above = w.value.clone(), below = w.value.clone();
    above.mutate<double>()[i] += h;
    below.mutate<double>()[i] -= h;
    const double slope = (y_at(above) - y_at(below)) / (2 * h);
    require(std::abs(gradients[w].data<double>()[i] - slope) < 1e-8, "element ", i, ": the slope is ", slope);
  }
}

}  // namespace

int main() { look(); }
