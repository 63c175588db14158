// SPDX-License-Identifier: Apache-2.0
// CONTRIBUTING's recipe for an elementwise op, applied by recipe.py: the files that it changes and those that depend on
// them, for the baseline CPU. The new op must have the right derivatives, and the wrong sign that the recipe proposes
// must be found.
#include "weft/engine/kernels/cpu/apply.cpp"
#include "weft/engine/kernels/cpu/factory.cpp"
#include "weft/engine/ops/elementwise.cpp"

#include <cstdio>

#include "tests/support/gradcheck.h"

using namespace weft;

static bool derivatives_are_right(const std::string& name, int orders) {
  for (const Op* op : Op::all()) {
    if (op->name != name) continue;
    const Sample& sample = op->samples[0];
    const GradientCheck check(sample.call, sample.shapes, sample.low, sample.high, Device::cpu);
    return check.first_order().ok() && (orders < 2 || check.second_order().ok());
  }
  fail({"there is no op ", name});
}

static bool values_are_right(DType dtype, double tolerance) {
  const Tensor x = Tensor::uniform({50}, {3}, -3, 3, DType::bf16).to(dtype), y = erf(x).value();
  bool right = true;
  for (size_t i = 0; i < 50; ++i) right = right && std::abs(y.values()[i] - std::erf(x.values()[i])) <= tolerance;
  return right;
}

int main() {
  require(derivatives_are_right("erf", 2), "the recipe's derivatives are wrong");
  require(
      values_are_right(DType::f64, 1e-15) && values_are_right(DType::f32, 1e-6) && values_are_right(DType::bf16, 4e-3),
      "the recipe's values are wrong");
  require(derivatives_are_right("wrong_erf", 1) && !derivatives_are_right("wrong_erf", 2), "a wrong ddf is not found");
  std::puts("the recipe works");
}
