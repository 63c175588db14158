// SPDX-License-Identifier: Apache-2.0
// Programs whose gradients were wrong in other libraries although each collective was right; see test_regressions.cpp.
#include <numeric>

#include "tests/support/on_ranks.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

using namespace weft;

namespace {

// A contrastive loss of these rows among all: a share of the mean over all rows.
Var contrastive(const Var& rows, const Var& all, int64_t first, const Var& scale) {
  Tensor targets({rows.shape()[0]}, DType::i64);
  for (int64_t i = 0; i < targets.size(); ++i) targets.mutate<int64_t>()[i] = first + i;
  const Var logits = matmul(mul_along(rows, scale, -1), all, Transpose::no, Transpose::yes);
  return sum(cross_entropy(logits, targets)) / static_cast<double>(all.shape()[0]);
}

}  // namespace

// Horovod #2654, #2687 and #2116, JAX #7965, mpi4jax #72: scales of all_gather and broadcast, and a second collective
// in one loss.
TEST_CASE("local use and collectives of one value add up in its gradient", "[r7][r12]") {
  on_ranks([](Communicator& comm) {
    const int me = number(comm), n = comm.size();
    Tape tape;
    const Var x = tape.watch(data_of(me, {2, 3}));
    const auto weight = [&](int use, int64_t rows) { return [=](int r) { return Var(data_of(r, {rows, 3}, use)); }; };
    const auto local = weight(1, 2), all = weight(2, 2 * n), from_root = weight(3, 2), turned = weight(4, 2);
    const Var loss = sum(x * local(me)) + sum(all_gather(x, comm) * all(me)) +
                     sum(broadcast(x, {0}, comm) * from_root(me)) + sum(shift(x, 1, comm) * turned(me));
    const Var expected = local(me) + block(total(comm, all), 2, me) + turned((me + 1) % n);
    expect_close(tape.gradient(loss, Var(scalar(1)), {x})[0], me == 0 ? expected + total(comm, from_root) : expected);
  });
}

// JAX #1633, #3970, #4327 and #36886: gradients of nested sums over ranks.
TEST_CASE("an all_reduce of an all_reduce counts every rank twice", "[r9]") {
  on_ranks([](Communicator& comm) {
    Tape tape;
    const Var x = tape.watch(data_of(number(comm), {3}));
    const Var c = data_of(number(comm), {3}, 1);
    const Var twice = all_reduce(as_varying(all_reduce(x * c, comm), comm), comm);
    expect_close(tape.gradient(sum(twice), {x})[0], c * comm.size());
  });
}

// JAX #15982, spmd_types pull request #1: gradients where the split and the joined axis differ.
TEST_CASE("all_to_all can split one axis and concatenate along another, and its inverse restores the input", "[r11]") {
  on_ranks([](Communicator& comm) {
    const int64_t me = number(comm), n = comm.size(), rows = 2, columns = 3;
    const auto columns_to_rows = [&](const Var& x) {  // (rows, n columns) -> (n rows, columns)
      const Var blocks = reshape(all_to_all(transpose(x), comm), {n, columns, rows});
      return reshape(permute(blocks, {0, 2, 1}), {n * rows, columns});
    };
    const auto rows_to_columns = [&](const Var& y) {
      const Var blocks = permute(reshape(y, {n, rows, columns}), {0, 2, 1});
      return transpose(all_to_all(reshape(blocks, {n * columns, rows}), comm));
    };
    const auto data = [&](int r) { return data_of(r, {rows, n * columns}); };
    const auto seed = [&](int r) { return data_of(r, {n * rows, columns}, 1); };
    Tape tape;
    const Var x = tape.watch(data(number(comm))), y = columns_to_rows(x), back = rows_to_columns(y);
    const Var gradient = tape.gradient(y, Var(seed(number(comm))), {x})[0];
    for (int r = 0; r < n; ++r) {
      expect_close(block(y, rows, r), slice(data(r), 1, me * columns, (me + 1) * columns));
      expect_close(slice(gradient, 1, r * columns, (r + 1) * columns), block(seed(r), rows, number(comm)));
    }
    expect_same_bits(back.value(), x.value());
    expect_same_bits(tape.gradient(back, x, {x})[0].value(), x.value());
  });
}

// MLX #2654, #4405 and #4071: gradients of collectives of scalars.
TEST_CASE("collectives that need no axis accept scalars, and the others say what to do", "[r13]") {
  on_ranks([](Communicator& comm) {
    const int me = number(comm), n = comm.size();
    const auto seed = [](int r) { return Var(data_of(r, {}, 1)); };
    Tape tape;
    const Var x = tape.watch(data_of(me, {}));
    const auto by_x = [&](const Var& y) { return tape.gradient(y, seed(me), {x})[0]; };
    expect_close(by_x(all_reduce(x, comm)), total(comm, seed));
    expect_close(by_x(broadcast(x, {0}, comm)), me == 0 ? total(comm, seed) : scalar(0));
    expect_close(by_x(reduce(x, {n - 1}, comm)), seed(n - 1));
    expect_close(by_x(shift(x, 1, comm)), seed((me + 1) % n));
    expect_close(by_x(scan(x, comm)), total(me, n, seed));
    expect_close(by_x(exscan(x, comm)), me + 1 < n ? total(me + 1, n, seed) : scalar(0));
    const Var rows = all_gather(reshape(x, {1}), comm);
    expect_close(tape.gradient(rows, Var(data_of(me, {n}, 2)), {x})[0],
                 reshape(block(total(comm, [&](int r) { return Var(data_of(r, {n}, 2)); }), 1, me), {}));
    expect_refusal([&] { all_gather(x, comm); }, {"all_gather: a scalar has no axis 0; reshape it to (1)"});
    expect_refusal([&] { gather(x, {0}, comm); }, {"gather: a scalar has no axis 0; reshape it to (1)"});
    expect_refusal([&] { scatter(x, {0}, comm); }, {"scatter: a scalar has no axis 0; reshape it to (1)"});
    expect_refusal([&] { reduce_scatter(x, comm); }, {"reduce_scatter: a scalar has no axis 0; reshape it to (1)"});
    expect_refusal([&] { all_to_all(x, comm); }, {"all_to_all: a scalar has no axis 0; reshape it to (1)"});
  });
}

// PyTorch Lightning #6624, Lightly #1531, DeCLUTR #212, VISSL #230, PyTorch Metric Learning #363, diffdist #1: gathers
// that keep the local slice only, or scale it wrongly.
TEST_CASE("a contrastive loss over gathered features equals one process, in value and gradients", "[r15]") {
  on_ranks([](Communicator& comm) {
    const Parameter encoder("encoder", data_of(0, {3, 4}, 1)), scale("scale", data_of(0, {4}, 2));
    Rows rows;
    std::vector<Var> batches;
    for (int r = 0; r < comm.size(); ++r) {
      rows.push_back((r + 2) % 4);
      batches.push_back(data_of(r, {rows.back(), 3}));
    }
    const int64_t first = std::accumulate(rows.begin(), rows.begin() + number(comm), int64_t{0});
    Gradients whole, shared;
    Tape one, tape;
    const Var all = matmul(one.constant(concat(batches, 0).value()), one.watch(encoder));
    const Var single = contrastive(all, all, 0, one.watch(scale));
    const Var mine = matmul(tape.constant(batches[static_cast<size_t>(number(comm))].value()), tape.watch(encoder));
    const Var share = contrastive(mine, all_gather_v(mine, rows, comm), first, tape.watch(scale));
    expect_close(comm.all_reduce(share.value()), single);
    one.backward(single, whole);
    tape.backward(share, shared);
    for (const Parameter* p : {&encoder, &scale}) expect_close(comm.all_reduce(shared[*p]), whole[*p]);
  });
}

// FlashAttention #1244: whether the identity is a correct backward of all_reduce.
TEST_CASE("a sum without communication in backward is Invariant and refuses Varying operands", "[r16]") {
  on_ranks([](Communicator& comm) {
    Tape tape;
    const Var x = tape.watch(data_of(number(comm), {3}));
    const auto weight = [](int r) { return Var(data_of(r, {3}, 1)); };
    const Var equal = all_reduce_equal(x, comm), own = tape.constant(weight(number(comm)).value());
    expect(placement_of(all_reduce(x, comm), comm) == Placement::replicated, "all_reduce is for any users");
    expect(placement_of(equal, comm) == Placement::invariant, "all_reduce_equal is for equal ones");
    expect_refusal([&] { equal* own; },
                   {"mul: input 2, which is Varying, meets an Invariant one", "vary() the Invariant input"});
    expect_close(tape.gradient(sum(equal), {x})[0], Tensor::full({3}, 1, DType::f64));
    expect_close(tape.gradient(sum(vary(equal, comm) * own), {x})[0], total(comm, weight));
  });
}

// fairchem #1067: the gradient was off by the number of groups, since replicated losses were averaged.
TEST_CASE("the group over which a loss is shared can differ from the one that averages gradients", "[r17]") {
  on_ranks({2, 4, 6}, [](Communicator& world) {
    const int me = number(world), replicas = world.size() / 2;
    const auto graph = world.split(me / 2), data = world.split(me % 2);  // pairs share a sample
    const Parameter w("w", data_of(0, {3}, 1));
    const auto sample = [](int replica, int part) { return data_of(2 * replica + part, {3}); };
    Gradients whole, shared, averaged;
    Tape one, tape, mean_tape;
    const auto energy = [&](int d) {
      return square(sum(one.watch(w) * sample(d, 0)) + sum(one.watch(w) * sample(d, 1)));
    };
    one.backward(total(0, replicas, energy) / replicas, whole);
    const auto loss = [&](Tape& t) {
      return square(all_reduce(sum(t.watch(w) * t.constant(sample(me / 2, me % 2))), *graph));
    };
    tape.backward(loss(tape) / replicas, shared);
    expect_close(world.all_reduce(shared[w]), whole[w]);
    mean_tape.backward(all_reduce(loss(mean_tape), *data, ReduceOp::mean), averaged);
    expect_close(world.all_reduce(averaged[w]), whole[w]);
  });
}
