// SPDX-License-Identifier: Apache-2.0
// Losses with several terms: a rank's share, a Replicated value, and a loss of the library.
#include "weft/collectives/share.h"

#include "tests/support/on_ranks.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/transports/self.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/contrastive/info_nce.h"
#include "weft/losses/metrics/regression_metrics.h"

using namespace weft;

namespace {

// Rows differ between ranks, and some ranks have none.
int64_t rows_of(int rank) { return std::array{3, 0, 2, 1}[static_cast<size_t>(rank) % 4]; }
Tensor rows(int rank, int use) { return data_of(rank, {rows_of(rank), 3}, use); }
int64_t total_of(int ranks) {
  int64_t sum = 0;
  for (int r = 0; r < ranks; ++r) sum += rows_of(r);
  return sum;
}
Var everyones(Tape& tape, int ranks, int use) {
  std::vector<Var> all;
  for (int r = 0; r < ranks; ++r) all.push_back(tape.constant(rows(r, use)));
  return concat(all, 0);
}

// Expects a program's loss and its gradient with respect to a parameter to be those of one process with all rows.
struct Model {
  Parameter w{"w", data_of(0, {3}, 50)};
  Var outputs(const Var& x) const { return tanh(mul_along(x, x.tape()->watch(w), -1)); }
};
template <class Mine, class Whole> void expect_as_one_process(Mine mine, Whole whole, Site site = Site::here()) {
  on_ranks({1, 2, 3, 5, 8}, [&](Communicator& comm) {
    const Model model;
    Communicator alone(connect_self());
    Tape one, tape;
    Gradients expected, gradients;
    const Var all = whole(model, everyones(one, comm.size(), 0), everyones(one, comm.size(), 1), alone);
    one.backward(all, expected);
    const Var loss = mine(model, tape.constant(rows(number(comm), 0)), tape.constant(rows(number(comm), 1)), comm);
    tape.backward(loss, gradients);
    expect_close(comm.all_reduce(loss.value()), all, site);
    const Tensor own = gradients.has(model.w) ? gradients[model.w] : Tensor::zeros({3}, DType::f64);
    expect_close(comm.all_reduce(own), expected[model.w], site);
  });
}

Var squares(const Model& model, const Var& x, const Var& y) { return sum(square(model.outputs(x) - y)); }
Var penalty(const Model& model, const Var& x) { return 0.3 * sum(square(x.tape()->watch(model.w))); }

}  // namespace

TEST_CASE("a penalty on parameters counts once in a sum with shares, and is refused without keep_on") {
  expect_as_one_process(
      [](const Model& model, const Var& x, const Var& y, Communicator& comm) {
        const Var own = share(squares(model, x, y), total_of(comm.size()), comm);
        expect_refusal([&] { own + penalty(model, x); },
                       {"add: input 2, which is Replicated, would be added once per rank", "keep_on adds it on one"});
        return own + keep_on(penalty(model, x), {0}, comm);
      },
      [](const Model& model, const Var& x, const Var& y, Communicator&) {
        return squares(model, x, y) / static_cast<double>(x.shape()[0]) + penalty(model, x);
      });
}

TEST_CASE("a share can be added to the library's losses") {
  expect_as_one_process(
      [](const Model& model, const Var& x, const Var& y, Communicator& comm) {
        const Var own = share(squares(model, x, y), total_of(comm.size()), comm);
        return info_nce(model.outputs(x), y, {}, comm) + own * 0.5;
      },
      [](const Model& model, const Var& x, const Var& y, Communicator& alone) {
        return info_nce(model.outputs(x), y, {}, alone) + share(squares(model, x, y), 2 * x.shape()[0], alone);
      });
}
TEST_CASE("a Replicated metric counts once in a sum with shares, and is refused without keep_on") {
  expect_as_one_process(
      [](const Model& model, const Var& x, const Var& y, Communicator& comm) {
        const Var own = share(squares(model, x, y), total_of(comm.size()), comm);
        const Var metric = mean(mean_squared_error(model.outputs(x), y, comm));
        expect_refusal([&] { metric + own; }, {"input 1, which is Replicated, would be added once per rank"});
        return keep_on(metric, {0}, comm) + own;
      },
      [](const Model& model, const Var& x, const Var& y, Communicator&) {
        return mean(square(model.outputs(x) - y)) + squares(model, x, y) / static_cast<double>(x.shape()[0]);
      });
}

TEST_CASE("share accepts a computed total and has its gradient") {
  const auto weights = [](const Model& model, const Var& x) { return square(model.outputs(x)) + 0.1; };
  expect_as_one_process(
      [&](const Model& model, const Var& x, const Var& y, Communicator& comm) {
        const Var w = weights(model, x), total = all_reduce(sum(w), comm);
        expect_refusal([&] { share(sum(w * y), sum(w), comm); },
                       {"share: its input is Varying", "a total is of all ranks' samples or weights; all_reduce"});
        return share(sum(w * square(y)), total, comm);
      },
      [&](const Model& model, const Var& x, const Var& y, Communicator&) {
        const Var w = weights(model, x);
        return sum(w * square(y)) / sum(w);
      });
}

TEST_CASE("share with weights that sum to zero is zero, with zero gradients") {
  on_ranks([](Communicator& comm) {
    Tape tape;
    const Var x = tape.watch(data_of(number(comm), {3})), none = all_reduce(sum(x * 0.0), comm);
    const Var loss = share(sum(x * 0.0), none, comm);
    const Var slope = tape.gradient(loss, {x})[0];
    expect_close(loss, scalar(0));
    expect_close(slope, Tensor::zeros({3}, DType::f64));
  });
}

TEST_CASE("share refuses a Replicated value") {
  on_ranks({2, 3}, [](Communicator& comm) {
    const Parameter w("w", data_of(0, {3}));
    Tape tape;
    expect_refusal([&] { share(sum(tape.watch(w)), 3, comm); },
                   {"share: its input is Replicated", "keep_on(x, {0}, comm) counts it once"});
    expect_refusal([&] { share(sum(tape.constant(data_of(0, {3}))), Tensor::full({}, 3, DType::f64), comm); },
                   {"input 2, which is unknown (a plain Tensor went into it"});
    expect_refusal([&] { share(Var(scalar(1)), Tensor::full({1}, 3, DType::f64), comm); },
                   {"share: the sum is f64 (), the total f64 (1)"});
  });
}
