// SPDX-License-Identifier: Apache-2.0
#pragma once
// An Op is the identity of a differentiable operation: its name, and the samples that the tests check it on. Every
// recorded node has an Op, so the tests know all operations.
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "weft/engine/tape/placement.h"
#include "weft/engine/tensor/shape.h"

namespace weft {

class Var;

// One way to call an op: inputs of these shapes are drawn uniformly from [low, high].
struct Sample {
  std::string label;
  std::vector<Shape> shapes;
  std::function<Var(std::span<const Var>)> call;
  double low = -1, high = 1;
};

// Whether a node runs in backward even if no gradient reached it on this rank. Collectives always do, because a
// gradient may have reached them on another rank, which then waits for this one.
enum class Replay : uint8_t { if_needed, always };

class Op {
 public:
  Op(std::string name, std::vector<Sample> samples, Algebra algebra = Algebra::nonlinear,
     Replay replay = Replay::if_needed);
  ~Op();
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;

  static const std::vector<const Op*>& all();

  const std::string name;
  const std::vector<Sample> samples;
  const Algebra algebra;
  const Replay replay;
};

}  // namespace weft
