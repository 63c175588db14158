// SPDX-License-Identifier: Apache-2.0
// Your own collective: which portion of whose tensor each rank takes, and a case that specifies the result. Each rank
// gets the sum of the values of the ranks before and after; everything else, the gradient included, follows. Prints
// both sides of <g, F x> = <F* g, x>, summed over ranks.
#include <cmath>
#include <iostream>

#include "tests/cases/collectives/collective_case.h"
#include "weft/collectives/linear_collective.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;

namespace {

struct NeighborSum {
  NeighborSum adjoint() const { return {}; }  // the matrix of portions is symmetric
  Portion portion(int reader, int source) const { return std::abs(reader - source) == 1 ? whole_tensor : no_portion; }
  int64_t exposed(int) const { return 1; }
  Verb verb() const { return Verb::custom; }
  static constexpr const char* op_name = "neighbor_sum";
  static constexpr bool by_rows = false, sums = false;
  static constexpr Placement result = Placement::varying;
};

using Values = DistributedCase::Values;  // of each rank
Values sums(const Values& x) {
  Values y(x.size(), {0.0});
  for (size_t r = 0; r + 1 < x.size(); ++r) y[r][0] += x[r + 1][0], y[r + 1][0] += x[r][0];
  return y;
}
const DistributedCase neighbor_sum{
    "neighbor_sum", [](int, int) { return std::vector<Shape>{{1}}; },
    [](auto x, Communicator& comm) { return run_linear(NeighborSum{}, x[0], comm, Site::here()); }, sums};

void check(Communicator& comm) {
  const auto rank = static_cast<uint64_t>(comm.rank().value);
  const Tensor values = Tensor::uniform({1}, {1, rank}, -1, 1, DType::f64);
  const Tensor g = Tensor::normal({1}, {2, rank}, 0, 1, DType::f64);
  Tape tape;
  const Var x = tape.watch(values), y = neighbor_sum.call(std::vector<Var>{x}, comm);
  Values all;
  for (int r = 0; r < comm.size(); ++r) all.push_back(comm.broadcast(values, {r}).values());
  require(y.value().values() == neighbor_sum.specification(all)[rank], "the value is not as specified");
  const auto inner = [&](const Var& a, const Var& b) { return sum_over_ranks(sum(a * b).value().item(), comm); };
  const double forward = inner(g, y), backward = inner(values, tape.gradient(y, g, {x})[0]);
  if (rank == 0) std::cout << "<g, F x> = " << forward << ", <F* g, x> = " << backward << '\n';
  require(std::abs(forward - backward) < 1e-12, "the pullback is not the adjoint");
}

}  // namespace

int main() { run_ranks(3, check); }
