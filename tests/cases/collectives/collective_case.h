// SPDX-License-Identifier: Apache-2.0
#pragma once
// A function that spans ranks, a collective or a whole model, registered so that tests find and check it. A loss has a
// LossCase (tests/cases/losses/loss_case.h) instead, which is also compared with one process.
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

class DistributedCase {
 public:
  using Values = std::vector<std::vector<double>>;  // one entry per rank

  std::string name;
  // The shapes of the inputs on one rank. Ranks may have different shapes, and may hold nothing.
  std::function<std::vector<Shape>(int rank, int ranks)> shapes;
  std::function<Var(std::span<const Var>, Communicator&)> call;
  // Computes the expected results of all ranks from the first inputs of all ranks. If there is none, finite differences
  // are the only check.
  std::function<Values(const Values& inputs)> specification = nullptr;
  double low = -1, high = 1;
  int orders = 2;  // how many orders of derivatives finite differences confirm; 0 if the function rounds

  DistributedCase(std::string name, decltype(shapes) shapes, decltype(call) call,
                  decltype(specification) specification = nullptr, double low = -1, double high = 1, int orders = 2);
  ~DistributedCase();
  DistributedCase(const DistributedCase&) = delete;
  DistributedCase& operator=(const DistributedCase&) = delete;

  static const std::vector<const DistributedCase*>& all();
};

}  // namespace weft
