// SPDX-License-Identifier: Apache-2.0
// The smallest program that uses Weft as a library: the gradient of sum(x^2) at (1, 2, 3).
#include <cstdio>
#include <vector>

#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"

int main() {
  weft::Tape tape;
  const weft::Var x = tape.watch(weft::Tensor::from({3}, {1, 2, 3}));
  const std::vector<double> gradient = tape.gradient(sum(square(x)), {x})[0].value().values();
  std::printf("the gradient of sum(x^2) at (1, 2, 3) is (%g, %g, %g)\n", gradient[0], gradient[1], gradient[2]);
  return gradient == std::vector<double>{2, 4, 6} ? 0 : 1;
}
