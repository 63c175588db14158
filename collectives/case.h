#pragma once
// Anything that spans ranks, a collective or a whole model, described so that tests find and check it. A loss has a
// LossCase (losses/case.h) instead, which is held against one process, too.
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

class DistributedCase {
 public:
  using Values = std::vector<std::vector<double>>;  // one entry per rank

  std::string name;
  // The shapes of the inputs on one rank of so many; ranks may differ, and may hold nothing.
  std::function<std::vector<Shape>(int rank, int ranks)> shapes;
  std::function<Var(std::span<const Var>, Communicator&)> call;
  // What each rank should get, from all ranks' first inputs at once; none where finite differences are the only check.
  std::function<Values(const Values& inputs)> specification = nullptr;
  double low = -1, high = 1;
  int orders = 2;  // of derivatives that finite differences must confirm: none where there is a rounding to go through

  DistributedCase(std::string name, decltype(shapes) shapes, decltype(call) call,
                  decltype(specification) specification = nullptr, double low = -1, double high = 1, int orders = 2);
  ~DistributedCase();
  DistributedCase(const DistributedCase&) = delete;
  DistributedCase& operator=(const DistributedCase&) = delete;

  static const std::vector<const DistributedCase*>& all();
};

}  // namespace weft
