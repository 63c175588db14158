// SPDX-License-Identifier: Apache-2.0
#include "tests/cases/losses/loss_case.h"

#include <numeric>

#include "weft/collectives/collectives.h"

namespace weft {
namespace {

std::vector<const LossCase*>& registry() {
  static std::vector<const LossCase*> cases;
  return cases;
}

// For finite differences every rank has its own leaves; a shared input is the mean of the ranks' leaves.
Var call(const LossCase& c, std::span<const Var> leaves, Communicator& comm) {
  const size_t divided = c.drawn.rows.size();
  Vars shared;
  for (const Var& leaf : leaves.subspan(divided)) shared.push_back(all_reduce(leaf, comm, ReduceOp::mean));
  return c.share(c.inputs(leaves.first(divided), shared, comm.rank().value, comm.size()), comm);
}

std::vector<Shape> shapes(const LossCase& c, int rank, int ranks) {
  std::vector<Shape> all;
  const int64_t mine = c.division(ranks)[static_cast<size_t>(rank)];
  for (const Shape& row : c.drawn.rows) all.push_back(row.with_inserted(0, mine));
  all.insert(all.end(), c.drawn.shared.begin(), c.drawn.shared.end());
  return all;
}

}  // namespace

LossCase::LossCase(std::string name, std::string variant, Drawn drawn, decltype(share) share, decltype(whole) whole,
                   int orders)
    : name(std::move(name)),
      variant(std::move(variant)),
      drawn(std::move(drawn)),
      share(std::move(share)),
      whole(std::move(whole)),
      distributed(
          this->name + (this->variant.empty() ? "" : ", ") + this->variant,
          [this](int rank, int ranks) { return shapes(*this, rank, ranks); },
          [this](std::span<const Var> x, Communicator& comm) { return call(*this, x, comm); }, nullptr, this->drawn.low,
          this->drawn.high, orders) {
  registry().push_back(this);
}
LossCase::~LossCase() { std::erase(registry(), this); }

const std::vector<const LossCase*>& LossCase::all() { return registry(); }

Rows LossCase::division(int ranks) const {
  constexpr int64_t weights[] = {3, 2, 0, 1, 4, 1, 0, 2};
  const auto weight = [&](int rank) { return weights[rank % 8]; };
  int64_t all = 0, before = 0;
  for (int r = 0; r < ranks; ++r) all += weight(r);
  Rows rows;
  for (int r = 0; r < ranks; ++r) {
    const int64_t begin = drawn.samples * before / all;
    before += weight(r);
    rows.push_back(drawn.samples * before / all - begin);
  }
  return rows;
}

LossCase::Inputs LossCase::inputs(std::span<const Var> rows, std::span<const Var> shared, int rank, int ranks) const {
  const Rows all = division(ranks);
  return {{rows.begin(), rows.end()},
          {shared.begin(), shared.end()},
          std::accumulate(all.begin(), all.begin() + rank, int64_t{0}),
          drawn.samples};
}

}  // namespace weft
