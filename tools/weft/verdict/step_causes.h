// SPDX-License-Identifier: Apache-2.0
#pragma once
// Why gradients of a step are not those of one process, where these are given. Where the reducer is at fault, gradients
// before and after it say so; where those before it are wrong already, weights of ranks and micro-batches are fitted to
// the truth.
#include <optional>

#include "tools/weft/verdict/distance.h"
#include "tools/weft/verdict/verdict.h"

namespace weft::verify {

struct StepParameter {
  std::string name;
  std::vector<std::vector<Matrix>> local;  // by rank and backward pass, before the reducer: (1, n)
  std::vector<Matrix> reduced;             // of the ranks that have it, after it
  Matrix truth;                            // of one process
  std::vector<Matrix> inexact;             // the same, each time off by its precision
  int64_t rows = 1;
  Precision precision;
};

// Of a gradient from a multiple of the truth.
Distance distance_of(const StepParameter& parameter, const Matrix& found, double factor = 1);

struct Step {
  std::vector<StepParameter> parameters;  // that are wrong
  int ranks = 0;
  std::vector<int64_t> rows;  // of the samples, by rank; fewer if ranks share some
  std::vector<Count> counts;
  bool others_right = false;  // whether other parameters are
};

struct StepCause {
  const Signature* signature;  // none, if the mistake is described
  std::string text;            // a variant of the signature, or the description
  double error;
  std::string repair;
};
std::optional<StepCause> cause_of(const Step& step);
// The step is right if these collectives pass gradients on.
StepCause lost_gradients(const std::vector<std::string>& collectives, double error);

}  // namespace weft::verify
