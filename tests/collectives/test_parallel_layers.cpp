// SPDX-License-Identifier: Apache-2.0
// Tensor-parallel layers over one group of ranks in a batch sharded over another, against one process with all of both.
#include <numeric>

#include "tests/support/counted_transport.h"
#include "tests/support/gradcheck.h"
#include "tests/support/on_ranks.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/nn/distributed_batch_norm.h"
#include "weft/collectives/nn/parallel_linear.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/run_ranks.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;

namespace test_parallel_layers {

using namespace placement_letters;
const Init init = {.key = {11}, .dtype = DType::f64};
const Activation tanh_between = {.op = Unary::Tanh};

// Ranks in a grid: samples are sharded along its rows, features along its columns.
struct Grid {
  Communicator& world;
  std::unique_ptr<Communicator> samples, features;
  Rows rows;  // samples of each rank along the grid's rows

  Grid(Communicator& world, int columns)
      : world(world), samples(world.split(number(world) % columns)), features(world.split(number(world) / columns)) {
    for (int r = 0; r < samples->size(); ++r) rows.push_back(std::array{3, 0, 2, 1}[static_cast<size_t>(r % 4)]);
  }
  double count() const { return static_cast<double>(std::accumulate(rows.begin(), rows.end(), int64_t{0})); }
  Tensor part(int r, int64_t width, int use) const { return data_of(r, {rows[static_cast<size_t>(r)], width}, use); }
  Tensor part(int64_t width, int use) const { return part(number(*samples), width, use); }
  Tensor whole(int64_t width, int use) const {
    std::vector<Var> parts;
    for (int r = 0; r < samples->size(); ++r) parts.push_back(part(r, width, use));
    return concat(parts, 0).value();
  }
};
template <class F> void on_grids(std::initializer_list<int> sizes, F f) {
  for (const int n : sizes)
    for (int columns = 1; columns <= n; ++columns) {
      if (n % columns != 0) continue;
      INFO(n / columns << " times " << columns << " ranks");
      CHECK_NOTHROW(run_ranks(n, [&](Communicator& world) { f(Grid(world, columns)); }));
    }
}

// This rank's slice of a whole tensor.
Var own(const Tensor& whole, int axis, const Communicator& group) {
  const FeatureRange mine = own_features(whole.shape()[axis], group);
  return slice(whole, axis, mine.begin, mine.end);
}

// A batch norm, a column-parallel and a row-parallel layer, and a loss; and the same for one process. Seven features do
// not divide by 2, 3, 4 or 6, and are too few for 8.
constexpr int64_t in = 3, hidden = 7, out = 2;
struct Single {
  BatchNorm norm{"norm", in, init};
  Mlp mlp{"mlp", {in, hidden, out}, init, tanh_between};
};
struct Divided {
  DistributedBatchNorm norm;
  ParallelMlp mlp;
  explicit Divided(const Grid& grid)
      : norm("norm", in, init, *grid.samples), mlp("mlp", in, hidden, out, init, *grid.features, tanh_between) {}
};
template <class Net> Var loss_of(Net& net, const Var& x, const Var& target, double count) {
  return sum(square(net.mlp(net.norm(x, {.training = true})) - target)) / count;
}

TEST_CASE("a tensor-parallel layer starts with the weights of one process on any number of ranks") {
  on_ranks({1, 2, 3, 5, 8}, [](Communicator& comm) {
    const Linear single("a", 5, hidden, init, tanh_between);
    const ColumnParallelLinear columns("a", 5, hidden, init, comm, tanh_between);
    expect_same_bits(columns.weight.value, own(single.weight.value, 1, comm).value());
    expect_same_bits(columns.bias.value, own(single.bias.value, 0, comm).value());
    const Linear plain("a", hidden, 5, init);
    const RowParallelLinear rows("a", hidden, 5, init, comm);
    expect_same_bits(rows.weight.value, own(plain.weight.value, 0, comm).value());
    expect_same_bits(rows.bias.value, plain.bias.value);
    expect(ColumnParallelLinear("a", 5, hidden, init, comm, {}, Bias::no).parameters().size() == 1, "a bias");
    expect(RowParallelLinear("a", 5, hidden, init, comm, Bias::no).parameters().size() == 1, "a bias");
  });
}

TEST_CASE("data and tensor parallelism over two groups give every parameter its gradient", "[r19][r20]") {
  on_grids({1, 2, 3, 4, 6, 8}, [](const Grid& grid) {
    Single single;
    Divided divided(grid);
    for (BatchNorm* norm : {&single.norm, static_cast<BatchNorm*>(&divided.norm)})
      norm->beta.value = data_of(0, {in}, 5);
    divided.mlp.second.bias.value = single.mlp.parameters()[3]->value = data_of(0, {out}, 6);
    Gradients whole, shared;
    Tape one, tape;
    const auto loss = loss_of(single, one.constant(grid.whole(in, 1)), one.constant(grid.whole(out, 2)), grid.count());
    const Var x = with_placement(tape.constant(grid.part(in, 1)), *grid.features, Placement::constant);
    const Var target = with_placement(tape.constant(grid.part(out, 2)), *grid.features, Placement::constant);
    const Var share = loss_of(divided, x, target, grid.count());
    expect(placement_of(share, *grid.samples) == V && placement_of(share, *grid.features) == I,
           "one share for all features");
    expect_close(grid.samples->all_reduce(share.value()), loss);
    one.backward(loss, whole);
    tape.backward(share, shared);

    const auto of = [&](size_t i) { return whole[*single.mlp.parameters()[i]]; };
    const auto over_samples = [&](const Parameter& p) { return grid.samples->all_reduce(shared[p]); };
    expect_close(over_samples(divided.mlp.first.weight), own(of(0), 1, *grid.features));
    expect_close(over_samples(divided.mlp.first.bias), own(of(1), 0, *grid.features));
    expect_close(over_samples(divided.mlp.second.weight), own(of(2), 0, *grid.features));
    expect_close(over_samples(divided.mlp.second.bias), of(3));
    expect_close(grid.world.all_reduce(shared[divided.norm.gamma]), whole[single.norm.gamma]);
    expect_close(grid.world.all_reduce(shared[divided.norm.beta]), whole[single.norm.beta]);
  });
}

TEST_CASE("a column-parallel and row-parallel pair has exact first and second derivatives on any number of ranks") {
  on_ranks({1, 2, 3, 5, 8}, [](Communicator& comm) {
    ParallelMlp mlp("mlp", in, hidden, out, init, comm, tanh_between);
    const GradientCheck check([&](auto x) { return vary(mlp(all_reduce_equal(x[0], comm)), comm); }, {{2, in}}, -1, 1,
                              Device::cpu, 17 + static_cast<uint64_t>(number(comm)),
                              [&](double x) { return comm.all_reduce(scalar(x)).item(); });
    expect(check.first_order().ok() && check.second_order().ok(), "a derivative is wrong");
  });
}

TEST_CASE("a column-parallel and row-parallel pair costs one collective forward and one backward", "[r26]") {
  run_ranks(3, [](std::unique_ptr<Transport> transport) {
    int collectives = 0;
    Communicator comm(std::make_unique<CountedTransport>(std::move(transport), collectives));
    ParallelMlp mlp("mlp", in, hidden, out, init, comm);
    Mlp single("mlp", {in, hidden, out}, init);
    const Tensor data = data_of(0, {4, in});
    Tape tape;
    Gradients grads;
    const Var y = mlp(with_placement(tape.watch(data), comm, I));
    mlp.first(with_placement(tape.constant(data), comm, Placement::constant));  // recomputes nothing
    expect(collectives == 1, "forward has " + text(collectives) + " collectives");
    expect_close(y, single(data));
    tape.backward(sum(y), grads);
    expect(collectives == 2, "backward has " + text(collectives - 1) + " collectives");
    expect_close(mlp(data), single(data));  // without a tape
  });
}

TEST_CASE("a missing placement conversion in a tensor-parallel pair is refused at the op that needs it", "[r22][r26]") {
  on_ranks([](Communicator& comm) {
    ParallelMlp mlp("mlp", in, hidden, out, init, comm, tanh_between);
    Tape tape;
    const Var data = tape.constant(data_of(0, {4, in})), x = with_placement(data, comm, I);
    const auto mine = [&](const Parameter& p) { return with_placement(tape.watch(p), comm, V); };
    const Var bias = tape.watch(mlp.second.bias);
    const Var h = mlp.first(x), part = mlp.second.part(h), y = mlp.second(h);
    expect(placement_of(h, comm) == V && placement_of(part, comm) == P && placement_of(y, comm) == I,
           "placements along the pair");
    const std::pair<Var, Placement> slopes[] = {
        {tape.watch(mlp.first.weight), V}, {tape.watch(mlp.second.weight), V}, {bias, I}};
    for (const auto& [by, placement] : slopes) {
      const Placement slope = placement_of(tape.gradient(sum(y), {by}, Graph::create)[0], comm);
      expect(slope == placement, "a gradient is " + text(slope));
    }

    expect_refusal([&] { matmul(x, mine(mlp.first.weight)); }, {"matmul: input 2, which is Varying", "vary() the Inv"});
    expect_refusal([&] { add_along(part, bias, -1); },
                   {"add_along: input 2, which is Replicated, would be added once per rank to a Partial one",
                    "complete the pending sum with all_reduce"});
    expect_refusal([&] { add_along(part, with_placement(bias, comm, I), -1); },
                   {"add_along: input 1, which is Partial"});
    expect_refusal([&] { linear(with_placement(h, comm, P), with_placement(mine(mlp.second.weight), comm, R), bias); },
                   {"linear with bias: it is not linear", "complete the pending sum with all_reduce"});
    expect_refusal([&] { tanh(part); }, {"tanh: it is not linear", "complete the pending sum with all_reduce"});
    expect_refusal([&] { all_reduce_equal(y, comm); }, {"all_reduce_equal: its input is Invariant"});
    expect_refusal([&] { all_reduce(y, comm); }, {"all_reduce: its input is Invariant"});
    expect_refusal([&] { y* with_placement(tape.constant(y.value()), comm, V); },
                   {"mul: input 2, which is Varying", "vary() the Invariant"});
    expect_refusal([&] { mlp(data); }, {"ColumnParallelLinear 'mlp.0.weight': its input is Varying",
                                        "but Invariant or Replicated is needed", "with_placement"});
    expect_refusal([&] { mlp.second(x); }, {"RowParallelLinear 'mlp.1.weight': its input is Invariant",
                                            "but Varying is needed", "ColumnParallelLinear"});
  });
}

TEST_CASE("the weight of a norm on each rank's own heads has its gradient summed over the ranks", "[r22]") {
  on_grids({1, 2, 4, 6}, [](const Grid& grid) {
    constexpr int64_t heads = 4, width = 3;
    const Communicator& group = *grid.features;
    // Whole heads are distributed, so the weights are cut here, at multiples of a head.
    const FeatureRange mine = own_features(heads, group);
    LayerNorm norm("norm", width, init);
    norm.gamma.value = data_of(0, {width}, 3);
    const Parameter up("up", data_of(0, {in, heads * width}, 4));
    const Parameter own_up("up", slice(up.value, 1, mine.begin * width, mine.end * width).value());
    const auto loss_of = [&](const Var& x, const Var& w, const Var& weights) {
      const Var h = matmul(x, w);
      return sum(reshape(norm(reshape(h, {h.shape()[0], h.shape()[1] / width, width})), h.shape()) * weights);
    };
    Tape one, tape;
    const Var loss =
        loss_of(one.constant(grid.whole(in, 1)), one.watch(up), one.constant(grid.whole(heads * width, 2)));
    const Tensor weights = slice(grid.part(heads * width, 2), 1, mine.begin * width, mine.end * width).value();
    const Var share = loss_of(with_placement(tape.constant(grid.part(in, 1)), group, R),
                              with_placement(tape.watch(own_up), group, V), tape.constant(weights));
    const Var part = tape.gradient(share, {tape.watch(norm.gamma)}, Graph::create)[0];
    expect(placement_of(part, group) == P, "it is " + text(placement_of(part, group)));
    expect_refusal([&] { square(part); }, {"square: it is not linear", "complete the pending sum with all_reduce"});
    Gradients whole, shared;
    one.backward(loss, whole);
    tape.backward(share, shared);
    expect_close(grid.world.all_reduce(shared[norm.gamma]), whole[norm.gamma]);
    expect_close(grid.world.all_reduce(shared[norm.beta]), whole[norm.beta]);
  });
}

TEST_CASE("a norm between tensor-parallel layers has an Invariant or a Partial gradient, as its parameters are placed",
          "[r22][r23]") {
  on_grids({1, 2, 4, 6}, [](const Grid& grid) {
    Communicator& group = *grid.features;
    LayerNorm norm("norm", in, init);
    norm.gamma.value = data_of(0, {in}, 3);
    Mlp single("mlp", {in, hidden, in}, init, tanh_between);
    ParallelMlp mlp("mlp", in, hidden, in, init, group, tanh_between);
    Tape one;
    Gradients whole;
    const Var y = one.constant(grid.whole(in, 1));
    one.backward(sum(square(single(norm(y)) + y)), whole);
    for (const Placement placement : {I, R}) {
      Tape tape;
      Gradients shared;
      const Var x = with_placement(tape.constant(grid.part(in, 1)), group, I);
      expect_refusal([&] { norm(x); }, {"which is Replicated, meets an Invariant one"});
      const auto typed = [&](const Parameter& p) { return with_placement(tape.watch(p), group, placement); };
      const Var each = placement == R ? vary(x, group) : x;
      tape.backward(sum(square(mlp(layer_norm(each, typed(norm.gamma), typed(norm.beta))) + x)), shared);
      Communicator& over = placement == R ? grid.world : *grid.samples;
      expect_close(over.all_reduce(shared[norm.gamma]), whole[norm.gamma]);
      expect_close(over.all_reduce(shared[norm.beta]), whole[norm.beta]);
    }
  });
}

TEST_CASE("sequence parallelism leaves Partial gradients of the norm", "[r23]") {
  on_ranks({1, 2, 3, 5, 8}, [](Communicator& comm) {
    Rows rows;
    for (int r = 0; r < comm.size(); ++r) rows.push_back(std::array{2, 0, 3, 1}[static_cast<size_t>(r % 4)]);
    std::vector<Var> parts;
    for (int r = 0; r < comm.size(); ++r) parts.push_back(data_of(r, {rows[static_cast<size_t>(r)], in}, 1));
    LayerNorm norm("norm", in, init);
    norm.gamma.value = data_of(0, {in}, 3);
    Linear up("up", in, hidden, init, tanh_between), down("down", hidden, in, init);
    ColumnParallelLinear own_up("up", in, hidden, init, comm, tanh_between);
    RowParallelLinear own_down("down", hidden, in, init, comm);
    own_down.bias.value = down.bias.value = data_of(0, {in}, 4);
    Tape one, tape;
    Gradients whole, shared;
    const Var all = one.watch(concat(parts, 0).value()), y = all + down(up(norm(all)));
    const Var x = tape.watch(parts[static_cast<size_t>(number(comm))].value());
    const Var h = own_up(all_gather_v(norm(x), rows, comm));
    const Var z = x + add_along(reduce_scatter_v(own_down.part(h), rows, comm), tape.watch(own_down.bias), -1);
    one.backward(sum(square(y)), whole);
    tape.backward(sum(square(z)), shared);
    expect_close(shared[own_up.weight], own(whole[up.weight], 1, comm));
    expect_close(shared[own_up.bias], own(whole[up.bias], 0, comm));
    expect_close(shared[own_down.weight], own(whole[down.weight], 0, comm));
    expect_close(comm.all_reduce(shared[own_down.bias]), whole[down.bias]);
    expect_close(comm.all_reduce(shared[norm.gamma]), whole[norm.gamma]);
    expect_close(comm.all_reduce(shared[norm.beta]), whole[norm.beta]);
  });
}

TEST_CASE("a projection shared by all heads has Partial gradients of weight and bias on every rank", "[r26]") {
  on_ranks({1, 2, 3, 5, 8}, [](Communicator& comm) {
    Linear queries("q", in, hidden, init), keys("k", in, 1, init), last("o", hidden, out, init);
    ColumnParallelLinear own_queries("q", in, hidden, init, comm);
    RowParallelLinear own_last("o", hidden, out, init, comm);
    const auto heads = [](const Var& q, const Var& k) { return mul_along(q, reshape(exp(k), {k.size()}), 0); };
    const Tensor data = data_of(0, {4, in});
    Tape one, tape;
    Gradients whole, shared;
    const Var y = one.watch(data), x = with_placement(tape.watch(data), comm, I), each = vary(x, comm);
    const Var expected = last(heads(queries(y), keys(y)));
    const Var actual = own_last(heads(own_queries(each), keys(each)));
    expect_close(actual, expected);
    expect_close(tape.gradient(sum(square(actual)), {x})[0], one.gradient(sum(square(expected)), {y})[0]);
    one.backward(sum(square(expected)), whole);
    tape.backward(sum(square(actual)), shared);
    expect_close(comm.all_reduce(shared[keys.weight]), whole[keys.weight]);
    expect_close(comm.all_reduce(shared[keys.bias]), whole[keys.bias]);
    expect_close(shared[own_queries.weight], own(whole[queries.weight], 1, comm));
    expect_close(shared[own_last.weight], own(whole[last.weight], 0, comm));
  });
}

}  // namespace test_parallel_layers
