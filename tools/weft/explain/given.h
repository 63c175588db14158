// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a reducer was given, and what it made of it.
#include <functional>

#include "tools/weft/verdict/expected_rounding.h"
#include "tools/weft/verdict/verdict.h"

namespace weft::verify {

struct Given {
  const ParameterEvidence& parameter;
  const Dump& dump;
  Observed made;  // by rank

  Given(const ParameterEvidence& of, const Dump& in) : parameter(of), dump(in), made(observed(of)) {}

  size_t ranks() const { return made.tensors.size(); }
  Eigen::Index passes() const { return std::ssize(parameter.local[0]); }
  bool whole() const;  // whether each rank has all elements before and after the reducer

  // What ranks have by some explanation, as a function of the gradients before the reducer.
  using Predicted = std::function<std::vector<Matrix>(const ParameterEvidence&)>;
  // How far off it is, in multiples of the rounding that is expected of it.
  double error(const Predicted& predicted) const;
};

// How far off what was predicted may be by rounding, by rank.
std::vector<ExpectedRounding> expected_rounding(const Given& given, const Given::Predicted& predicted);

// How often an element fits in the place of another one by chance.
double share_alike(const Matrix& truth, const ExpectedRounding& expected);

// What the reducer should have made, by rank.
std::vector<Matrix> should_be(const ParameterEvidence& parameter, const Dump& dump);
// What the gradient of each rank and micro-batch should have added to it on one rank, in this order.
std::vector<Matrix> contributions(const ParameterEvidence& parameter, const Dump& dump, size_t to_rank);

}  // namespace weft::verify
