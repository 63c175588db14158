// SPDX-License-Identifier: Apache-2.0
// Your own collective: an op, a function that communicates once and records the adjoint, and a case that specifies the
// result. The example is a rank's value minus that of the rank `by` places before it in a ring; its adjoint is the same
// with -by. Prints both sides of <g, F x> = <F* g, x>, summed over ranks.
#include <cmath>
#include <iostream>

#include "weft/collectives/cases/collective_case.h"
#include "weft/collectives/linear_collective.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;

namespace {

const CollectiveOp ring_difference_op{"ring_difference"};

Var ring_difference(const Var& x, int by, Communicator& comm, Site site = Site::here()) {
  check_movable(ring_difference_op, x, comm);
  Sources others;
  for (int r = 0; r < comm.size(); ++r) others.push_back((r - by + comm.size()) % comm.size());
  const Var difference = Var(x.value()) - comm.permute(x.value(), others, site);
  const auto adjoint = [=, &comm](const Var& g) { return ring_difference(g, -by, comm, site); };
  return with_placement(record(ring_difference_op, difference.value(), from(x, adjoint)), comm, Placement::varying);
}

using Values = DistributedCase::Values;  // of each rank
Values differences(const Values& x) {
  Values y = x;
  for (size_t r = 0; r < x.size(); ++r) y[r][0] -= x[(r + x.size() - 1) % x.size()][0];
  return y;
}
const DistributedCase ring_difference_case{"ring_difference", [](int, int) { return std::vector<Shape>{{1}}; },
                                           [](auto x, Communicator& comm) { return ring_difference(x[0], 1, comm); },
                                           differences};

void check(Communicator& comm) {
  const auto rank = static_cast<uint64_t>(comm.rank().value);
  const Tensor values = Tensor::uniform({1}, {1, rank}, -1, 1, DType::f64);
  const Tensor g = Tensor::normal({1}, {2, rank}, 0, 1, DType::f64);
  Tape tape;
  const Var x = tape.watch(values), y = ring_difference_case.call(std::vector<Var>{x}, comm);
  Values all;
  for (int r = 0; r < comm.size(); ++r) all.push_back(comm.broadcast(values, {r}).values());
  require(y.value().values() == ring_difference_case.specification(all)[rank], "the value is not as specified");
  const auto inner = [&](const Var& a, const Var& b) { return sum_over_ranks(sum(a * b).value().item(), comm); };
  const double forward = inner(g, y), backward = inner(values, tape.gradient(y, g, {x})[0]);
  if (rank == 0) std::cout << "<g, F x> = " << forward << ", <F* g, x> = " << backward << '\n';
  require(std::abs(forward - backward) < 1e-12, "the pullback is not the adjoint");
}

}  // namespace

int main() try {
  run_ranks(3, check);
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
