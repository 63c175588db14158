// SPDX-License-Identifier: Apache-2.0
// Gradients of single collectives that were wrong in other libraries. Each test names the public reports; README.md
// lists them by tag. Programs of several collectives are in test_regressions_programs.cpp; walks, hooks, order and bits
// are in test_regressions_walks.cpp.
#include <numeric>

#include "tests/cases/collectives/collective_case.h"
#include "tests/support/on_ranks.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/activation_checkpoint.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

using namespace weft;

namespace {

// The inner rows of a larger tensor: a view into it, or a copy.
Tensor inner(const Tensor& wide, bool view) {
  if (wide.shape().rank() == 0) return wide;
  const Tensor rows = wide.slice(1, wide.shape()[0] - 2);
  return view ? rows : rows.clone();
}
Shape wider(const Shape& shape) { return shape.rank() ? shape.with(0, shape[0] + 3) : shape; }

// The gradients of a case with respect to all its inputs.
std::vector<Var> gradients(const DistributedCase& c, Communicator& comm, bool views) {
  Tape tape;
  std::vector<Var> inputs;
  for (const Shape& shape : c.shapes(number(comm), comm.size())) {
    const Tensor x = data_of(number(comm), wider(shape), static_cast<int>(inputs.size()));
    inputs.push_back(tape.watch(inner(affine(x, (c.high - c.low) / 2, (c.high + c.low) / 2).value(), views)));
  }
  const Var y = c.call(inputs, comm);
  const Tensor seed = data_of(number(comm), wider(y.shape()), 9), before = seed.clone();
  const std::vector<Var> result = tape.gradient(y, Var(inner(seed, views)), inputs);
  expect_same_bits(seed, before);
  return result;
}

}  // namespace

// PyTorch #120386 and #120582: the gradient of all_gather was lost where a buffer was not contiguous.
TEST_CASE("collectives accept views as inputs and cotangents", "[r1]") {
  for (const DistributedCase* c : DistributedCase::all()) {
    INFO(c->name);
    on_ranks({1, 3}, [&](Communicator& comm) {
      const std::vector<Var> whole = gradients(*c, comm, false), views = gradients(*c, comm, true);
      for (size_t i = 0; i < whole.size(); ++i) expect_same_bits(views[i].value(), whole[i].value());
    });
  }
}

// Megatron-LM #5338 and SkyRL #1886: a reduction returned the unreduced tensor where its input was not contiguous.
TEST_CASE("a transposed cotangent reaches the ranks that share a value", "[r2]") {
  on_ranks([](Communicator& comm) {
    Tape tape;
    const Var x = tape.watch(data_of(number(comm), {2, 3}));
    const auto weight = [](int r) { return Var(data_of(r, {3, 2}, 1)); };
    const Var loss = sum(transpose(vary(all_reduce_equal(x, comm), comm)) * weight(number(comm)));
    expect_close(tape.gradient(loss, Var(scalar(1)), {x})[0], transpose(total(comm, weight)));
  });
}

// PyTorch #190007, #190224, #190630 and #191114: the mean had a forward, but its backward threw. PyTorch #152127,
// #152131 and #121587: plain collectives dropped gradients silently.
TEST_CASE("every reduction over ranks has a gradient or is refused when recorded", "[r3][r4]") {
  static_assert(!std::is_convertible_v<Var, Tensor>, "plain collectives take no Var, so none loses its gradient there");
  on_ranks([](Communicator& comm) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::product, ReduceOp::maximum, ReduceOp::minimum}) {
      Tape tape;
      const Var x = tape.watch(data_of(number(comm), {2 * comm.size(), 3}));
      for (const Var& y : {all_reduce(x, comm, op), scan(x, comm, op)})
        expect(sum(abs(tape.gradient(sum(y), {x})[0])).value().item() > 0, text(op) + " has no gradient");
      if (op == ReduceOp::sum || op == ReduceOp::mean) continue;
      expect_refusal([&] { reduce_scatter(x, comm, op); }, {"reduce_scatter", "has no gradient here"});
      expect_refusal([&] { reduce(x, {0}, comm, op); }, {"reduce", "has no gradient here"});
      reduce_scatter(detach(x), comm, op);
    }
    const Tape tape;
    expect(!all_reduce(Var(Tensor::arange(3)), comm).tracked(), "an integer sum has no gradient");
  });
}

// PyTorch #58005 and #31572, PyTorch tutorials #1039, JAX #1633, #3970, #4327 and #36886: which multiple of the
// gradient an all-reduced loss gives.
TEST_CASE("every pair of a loss and a seed gives the documented multiple of the gradient", "[r5][r9]") {
  using Loss = std::function<Var(const Var&, Communicator&)>;
  struct Row {
    const char* what;
    Loss loss;
    bool seed_of_one;
    double factor;
    int power;
  };  // factor ranks^power
  const Loss own = [](auto&l, auto&) { return l; }, part = [](auto&l, auto&comm) { return as_partial(l, comm); },
             all = [](auto&l, auto&comm) { return all_reduce(l, comm); },
             mean = [](auto&l, auto&comm) { return all_reduce(l, comm, ReduceOp::mean); },
             equal = [](auto&l, auto&comm) { return all_reduce_equal(l, comm); };
  const Row rows[] = {{"each rank's own", own, false, 1, 0},
                      {"a part of the sum", part, false, 1, 0},
                      {"the sum", all, false, 1, 0},
                      {"the sum, seeded with 1", all, true, 1, 1},
                      {"the mean", mean, false, 1, -1},
                      {"the mean, seeded with 1", mean, true, 1, 0},
                      {"the Invariant sum", equal, false, 1, 0},
                      {"the Invariant sum, seeded with 1", equal, true, 1, 0}};
  for (const Row& row : rows) {
    INFO(row.what);
    on_ranks([&](Communicator& comm) {
      const int me = number(comm);
      Parameter shared("shared", data_of(0, {4})), shard("shard", data_of(me, {4}, 1));
      const Var c = data_of(me, {4}, 2), d = data_of(me, {4}, 3);
      Tape tape;
      const Var s = tape.watch(shared), t = with_placement(tape.watch(shard), comm, Placement::varying);
      const Var loss = row.loss(sum(tape.constant(c.value()) * s * s + d * t * t), comm);
      Gradients grads;
      if (row.seed_of_one)
        tape.backward(loss, scalar(1), grads);
      else
        tape.backward(loss, grads);
      const double factor = row.factor * std::pow(comm.size(), row.power);
      expect_close(grads[shared], 2 * factor * c * shared.value);
      expect_close(grads[shard], 2 * factor * d * shard.value);
    });
  }
}

// PyTorch/XLA #2989, #5784 and #2086: backward of all_reduce and all_gather did not communicate.
TEST_CASE("the gradient of a collective includes every rank's use of its result", "[r6]") {
  on_ranks([](Communicator& comm) {
    const int me = number(comm), n = comm.size();
    Tape tape;
    const Var x = tape.watch(data_of(me, {2, 3}));
    const auto sums = [](int r) { return Var(data_of(r, {2, 3}, 1)); };
    const auto rows = [&](int r) { return Var(data_of(r, {2 * n, 3}, 2)); };
    const Var reduced = all_reduce(x, comm), gathered = all_gather(x, comm), last = broadcast(x, {n - 1}, comm);
    const auto by_x = [&](const Var& loss) { return tape.gradient(loss, Var(scalar(1)), {x})[0]; };
    expect_close(by_x(sum(square(reduced) * sums(me))), 2 * total(comm, sums) * reduced.value());
    expect_close(by_x(sum(square(gathered) * rows(me))), 2 * block(total(comm, rows), 2, me) * x.value());
    expect_close(by_x(sum(square(last) * sums(me))), (me == n - 1 ? 2.0 : 0.0) * total(comm, sums) * x.value());
  });
}

// Horovod #331: the gradient of a broadcast was not zero off the root.
TEST_CASE("results and gradients off the root are exactly zero", "[r8]") {
  on_ranks([](Communicator& comm) {
    const int me = number(comm), n = comm.size();
    const Tensor zeros = Tensor::zeros({2 * n, 3}, DType::f64);
    for (int root = 0; root < n; ++root) {
      Tape tape;
      const Var x = tape.watch(data_of(me, {2 * n, 3})), same = broadcast(x, {root}, comm),
                mine = scatter(x, {root}, comm);
      const auto same_seed = [&](int r) { return Var(data_of(r, {2 * n, 3}, 1)); };
      const auto my_seed = [&](int r) { return Var(data_of(r, {2, 3}, 2)); };
      const Tensor by_same = tape.gradient(same, same_seed(me), {x})[0].value();
      const Tensor by_mine = tape.gradient(mine, my_seed(me), {x})[0].value();
      const Tensor at_root = reduce(x, {root}, comm).value();
      const Var rows = gather(x, {root}, comm);
      if (me == root) {
        expect_close(by_same, total(comm, same_seed));
        for (int r = 0; r < n; ++r) expect_close(block(by_mine, 2, r), my_seed(r));
        continue;
      }
      for (const Tensor& t : {by_same, by_mine, at_root}) expect_same_bits(t, zeros);
      expect(rows.size() == 0, "gathered off the root");
    }
  });
}

TEST_CASE("ties share a gradient, a product has one at zeros, and NaN reaches every rank") {
  on_ranks([](Communicator& comm) {
    const int me = number(comm), n = comm.size();
    const auto seed = [](int r) { return Var(data_of(r, {3}, 1)); };
    const Var seeds = total(comm, seed);
    const auto by = [&](const Var& y, const Var& x) { return x.tape()->gradient(y, seed(me), {x})[0]; };
    Tape tape;
    const Var equal = tape.watch(data_of(0, {3})), odd = tape.watch(Tensor::full({3}, me % 2, DType::f64));
    for (const ReduceOp op : {ReduceOp::maximum, ReduceOp::minimum}) {
      const int extreme = op == ReduceOp::maximum && n > 1, owners = extreme ? n / 2 : (n + 1) / 2;
      expect_close(by(all_reduce(equal, comm, op), equal), seeds / n);
      expect_close(by(all_reduce(odd, comm, op), odd), seeds * (me % 2 == extreme ? 1.0 / owners : 0));
    }
    // The first column has no zero, the second one, the third two if there are two ranks.
    const auto factor = [&](int r) {
      std::vector<double> values = data_of(r, {3}, 2).values();
      if (r == 0) values[1] = values[2] = 0;
      if (r == n - 1) values[2] = 0;
      return Var(Tensor::from({3}, values, DType::f64));
    };
    const Var x = tape.watch(factor(me).value());
    Var others = Tensor::full({3}, 1, DType::f64);
    for (int r = 0; r < n; ++r)
      if (r != me) others = others * factor(r);
    expect_close(by(all_reduce(x, comm, ReduceOp::product), x), seeds * others);
    const Var bad = tape.watch(Tensor::full({3}, me == n - 1 ? NAN : 1, DType::f64));
    for (const ReduceOp op : {ReduceOp::maximum, ReduceOp::minimum}) {
      const Var y = all_reduce(bad, comm, op);
      expect(std::isnan(sum(y).value().item()) && std::isnan(sum(by(y, bad)).value().item()), "a NaN was lost");
    }
    const Var zero = tape.watch(Tensor::zeros({3}, DType::f64));
    expect_close(by(all_reduce_norm(zero, comm), zero), zero);
  });
}

// JAX #3651 and #3653: the transpose of a sum over ranks failed on a cotangent that was a symbolic zero.
TEST_CASE("a rank whose loss ignores a collective, or a checkpoint of one, takes part in backward with zeros",
          "[r10]") {
  for (const DistributedCase* c : DistributedCase::all()) {
    INFO(c->name);
    on_ranks([&](Communicator& comm) {
      const bool used = number(comm) == 0;
      const auto call = [&](std::span<const Var> x) { return c->call(x, comm); };
      for (const bool checkpointed : {false, true}) {
        Tape tape;
        std::vector<Var> inputs;
        for (const Shape& shape : c->shapes(number(comm), comm.size()))
          inputs.push_back(tape.watch(affine(data_of(number(comm), shape), 0.25, 0.75).value()));
        const Var y = checkpointed ? checkpoint(call, Vars(inputs.begin(), inputs.end())) : call(inputs);
        const Tensor seed = used ? data_of(0, y.shape(), 9) : Tensor::zeros(y.shape(), DType::f64);
        const Var loss = used ? sum(y * seed) : tape.constant(scalar(1));
        const auto ignored = tape.gradient(loss, Var(scalar(1)), inputs), zero = tape.gradient(y, seed, inputs);
        for (size_t i = 0; i < zero.size(); ++i) expect_close(ignored[i], zero[i]);
      }
    });
  }
}

// Found in mpi4torch, not reported there: backward of Allgather was wrong on three ranks and more.
TEST_CASE("the gradient of all_gather sums all ranks' cotangents, for any number of ranks and rows", "[r14]") {
  on_ranks({1, 2, 3, 4, 5}, [](Communicator& comm) {
    const int me = number(comm);
    Rows rows;
    for (int r = 0; r < comm.size(); ++r) rows.push_back((r + 2) % 4);  // 2 3 0 1 2
    const int64_t before = std::accumulate(rows.begin(), rows.begin() + me, int64_t{0}),
                  mine = rows[static_cast<size_t>(me)];
    const int64_t all = std::accumulate(rows.begin(), rows.end(), int64_t{0});
    Tape tape;
    const Var x = tape.watch(data_of(me, {mine, 3}));
    const auto seed = [&](int r) { return Var(data_of(r, {all, 3}, 1)); };
    const Var expected = slice(total(comm, seed), 0, before, before + mine);
    expect_close(tape.gradient(all_gather_v(x, rows, comm), seed(me), {x})[0], expected);
  });
}

// PyTorch #162338, #144045 and #154928, PyTorch/XLA #9670: the mean or a scale was wrong, or ignored on one rank.
TEST_CASE("a collective on one rank records and computes the same as on several ranks", "[r18]") {
  for (const DistributedCase* c : DistributedCase::all()) {
    if (c->name == "send and receive along a line") continue;  // the ends of the line do less work
    if (c->name == "reduce mean") continue;                    // does not multiply by 1
    INFO(c->name);
    const auto recorded = [&](int n) {
      int64_t size = 0;
      run_ranks(n, [&](Communicator& comm) {
        Tape tape;
        std::vector<Var> inputs;
        for (const Shape& shape : c->shapes(number(comm), n))
          inputs.push_back(tape.watch(Tensor::full(shape, 0.5, DType::f64)));
        tape.gradient(sum(c->call(inputs, comm)), Var(scalar(1)), inputs, Graph::create);
        if (number(comm) == 0) size = tape.size();
      });
      return size;
    };
    const int64_t alone = recorded(1);
    CHECK(alone == recorded(3));
  }
  run_ranks(1, [](Communicator& comm) {
    expect_refusal([&] { all_reduce(Var(Tensor::arange(3)), comm, ReduceOp::mean); },
                   {"mean: a floating type is needed"});
    Tape tape;
    const Var x = tape.watch(data_of(0, {2}));
    expect_same_bits(all_reduce(x, comm, ReduceOp::mean).value(), x.value());
  });
}
