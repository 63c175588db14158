// SPDX-License-Identifier: Apache-2.0
// Training with the same bits on any number of ranks.
#include "tests/support/on_ranks.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/transports/self.h"
#include "weft/engine/nn/linear.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/common/division.h"
#include "weft/losses/contrastive/nt_xent.h"
#include "weft/optim/accumulate/accumulate.h"
#include "weft/optim/accumulate/cached.h"
#include "weft/optim/accumulate/exact_gradients.h"
#include "weft/optim/parallel/data_parallel.h"

namespace weft {
namespace {

constexpr int64_t blocks = 8, block = 3, steps = 10;

// Two views of each sample, by its index.
Tensor views(int64_t step, int64_t first, int64_t rows, uint64_t view) {
  std::vector<Var> all;
  for (int64_t i = first; i < first + rows; ++i)
    all.push_back(Tensor::uniform({1, 5}, {7, static_cast<uint64_t>(1000 * step + i)}, -1, 1) +
                  Tensor::uniform({1, 5}, {8 + view, static_cast<uint64_t>(1000 * step + i)}, -0.2, 0.2));
  return all.empty() ? Tensor({0, 5}, DType::f32) : concat(all, 0).value();
}

struct Net : Module {
  Mlp tower{"tower", {5, 16, 4}, {.key = {3}}};
  Parameter scale{"scale", Tensor::full({}, 1)};
  Net() {
    register_module(tower);
    register_parameter(scale);
  }
};

// The weights after some steps on this group, one block of samples after the other.
std::vector<double> trained(Communicator& comm, int stage, bool exact) {
  Communicator alone(connect_self());
  Net net;
  DataParallel training({{net.parameters(), AdamW{}}}, comm, {.stage = stage});
  ExactGradients sums(net.parameters(), comm);
  const int64_t first = blocks * comm.rank().value / comm.size(), last = blocks * (comm.rank().value + 1) / comm.size();
  const Division division((last - first) * block, comm);
  for (int64_t step = 0; step < steps; ++step) {
    const auto encode = [&](int64_t i, Tape& tape) -> Features {
      const int64_t begin = (first + i) * block, rows = first + i < last ? block : 0;
      return {net.tower(tape.constant(views(step, begin, rows, 0))),
              net.tower(tape.constant(views(step, begin, rows, 1)))};
    };
    const auto loss = [&](Tape& tape, const Features& mine) {
      const auto everyones = [&](const Var& x) { return all_gather_equal(x, division.rows, comm); };
      const Var one_process = nt_xent(everyones(mine[0]), everyones(mine[1]), {.temperature = 0.3}, alone);
      return one_process * as_invariant(tape.watch(net.scale), comm);
    };
    Gradients& gradients = exact ? sums.gradients() : training.gradients();
    cached_backward(std::max<int64_t>(last - first, 1), encode, loss, gradients, {}, Recompute::no);
    if (exact) sums.hand_over(training.gradients());
    training.step(0.01);
  }
  std::vector<double> weights;
  for (const Parameter* p : net.parameters())
    for (const double w : p->value.values()) weights.push_back(w);
  return weights;
}

std::vector<double> trained(int ranks, int stage, bool exact) {
  std::vector<double> result;
  run_ranks(ranks, [&](Communicator& comm) {
    const auto mine = trained(comm, stage, exact);
    if (comm.rank().value == 0) result = mine;
  });
  return result;
}

TEST_CASE("exact gradient sums train to the same bits on any number of ranks at stages 0 to 2") {
  const auto expected = trained(1, 0, true);
  int plain_differs = 0;
  for (const int ranks : {1, 2, 3, 4, 5, 8})
    for (const int stage : {0, 1, 2}) {
      INFO(ranks << " ranks, stage " << stage);
      CHECK(trained(ranks, stage, true) == expected);
      plain_differs += trained(ranks, stage, false) != trained(1, 0, false);
    }
  CHECK(plain_differs > 0);
}

TEST_CASE("exact gradient sums agree with plain sums up to rounding") {
  const auto exact = trained(3, 0, true), plain = trained(3, 0, false);
  for (size_t i = 0; i < exact.size(); ++i) CHECK(exact[i] == Approx(plain[i]).epsilon(1e-3).margin(1e-5));
}

TEST_CASE("a parameter that no block of any rank used has no gradient in an exact sum") {
  on_ranks([](Communicator& comm) {
    Parameter used("used", Tensor::full({2}, 1)), unused("unused", Tensor::full({2}, 1));
    ExactGradients sums({&used, &unused}, comm);
    Tape tape;
    tape.backward(sum(tape.watch(used)), sums.gradients());
    Gradients all;
    sums.hand_over(all);
    expect(all.has(used) == (comm.rank().value == 0) && !all.has(unused), "the first rank has what was used");
    if (all.has(used)) expect(all[used].values() == std::vector<double>(2, comm.size()), "the sum over ranks");
  });
}

}  // namespace
}  // namespace weft
