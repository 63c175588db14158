// SPDX-License-Identifier: Apache-2.0
#include "tests/random_programs/registry.h"

#include <algorithm>
#include <cmath>

#include "tests/random_programs/step_kinds.h"
#include "tests/random_programs/values.h"
#include "weft/engine/tape/op.h"

namespace weft::random_programs {

namespace {

// A symmetric range keeps linear ops linear: values are scaled into it only if they are too large.
Var moved_into(const Sample& sample, const Var& x, double bound) {
  if (sample.low != -sample.high) return into_range(x, sample.low, sample.high);
  return bound > sample.high ? x * (sample.high / bound) : x;
}

Var call(const Sample& sample, const Vars& inputs, double bound, int64_t result_rows) {
  std::vector<Var> x;
  for (size_t i = 0; i < sample.shapes.size(); ++i)
    x.push_back(moved_into(sample, fit(inputs[i], sample.shapes[i]), bound));
  return fit(sample.call(x), {result_rows, columns});
}

// The rows of a result, and how large its elements are at most, from a few calls.
struct Extent {
  int64_t rows;
  double bound;
};
Extent extent_of(const Sample& sample) {
  Extent extent{1, 0};
  for (uint64_t key = 0; key < 3; ++key) {
    std::vector<Var> x;
    for (const Shape& shape : sample.shapes)
      x.push_back(Tensor::uniform(shape, {key, x.size()}, sample.low, sample.high, DType::f64));
    const Tensor y = sample.call(x).value();
    extent.rows = std::clamp<int64_t>((y.size() + columns - 1) / columns, 1, 4);
    for (const double v : y.values()) extent.bound = std::max(extent.bound, 1.5 * std::abs(v));
  }
  return extent;
}

StepKind kind_of(const Op& op, size_t number) {
  const Sample& sample = op.samples[number];
  const Extent extent = extent_of(sample);
  return {.name = op.name + "/" + std::to_string(number),
          .feature = Feature::registry,
          .inputs = static_cast<int>(sample.shapes.size()),
          .lay_out =
              [extent](const Situation& s) {
                Layout layout{{}, s.everywhere(extent.rows), extent.bound};
                for (const Layout* input : s.inputs) layout.in.push_back(input->out);
                return std::optional(layout);
              },
          .run = [&sample, extent](const Call& c) { return call(sample, c.x, c.layout.input_bound, extent.rows); },
          .text = "call_sample(\"" + op.name + "\", " + std::to_string(number) + ", c.inputs, c.bound, " +
                  std::to_string(extent.rows) + ")"};
}

}  // namespace

Var call_sample(const std::string& name, size_t sample, const Vars& inputs, double bound, int64_t result_rows) {
  for (const Op* op : Op::all())
    if (op->name == name) return call(op->samples.at(sample), inputs, bound, result_rows);
  fail({"random programs: no op is named ", name});
}

std::vector<StepKind> registry_kinds() {
  std::vector<StepKind> kinds;
  for (const Op* op : Op::all())
    for (size_t i = 0; i < op->samples.size(); ++i) kinds.push_back(kind_of(*op, i));
  return kinds;
}

}  // namespace weft::random_programs
