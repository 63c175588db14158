// SPDX-License-Identifier: Apache-2.0
// Placements in whole programs: checkpoints, two groups at once, second-order gradients.
#include "tests/support/on_ranks.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/activation_checkpoint.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;

namespace {
using namespace placement_letters;
}

TEST_CASE("a checkpoint passes on its result's placement, and the same rules hold inside") {
  on_ranks([](Communicator& comm) {
    const Parameter w("w", data_of(0, {2, 3}));
    Tape tape;
    const Var x = tape.watch(data_of(number(comm), {2, 3}, 1));
    const auto piece = [&](std::span<const Var> v) {
      return square(all_reduce_equal(v[0] * v[0].tape()->watch(w), comm));
    };
    const Var y = checkpoint(piece, {x}), plain = piece(std::vector{x});
    expect(placement_of(y, comm) == I, "the checkpoint of an Invariant value is " + text(placement_of(y, comm)));
    expect_refusal([&] { y* x; }, {"mul: input 2, which is Varying, meets an Invariant one"});
    const std::vector<Var> by = {tape.watch(w), x};
    const auto expected = tape.gradient(sum(plain), by), actual = tape.gradient(sum(y), by);
    for (size_t i = 0; i < by.size(); ++i) expect_same_bits(actual[i].value(), expected[i].value());
    const auto wrong = [&](std::span<const Var> v) { return exp(as_partial(v[0], comm)); };
    expect_refusal([&] { checkpoint(wrong, {x}); }, {"exp: it is not linear", "complete the pending sum"});
    const Var part = checkpoint([&](auto v) { return as_partial(reshape(v[0], {3, 2}), comm); }, {x});
    expect(placement_of(part, comm) == P, "the checkpoint of a Partial value is " + text(placement_of(part, comm)));
    expect_refusal([&] { square(part); }, {"square: it is not linear"});
  });
}

TEST_CASE("a Partial sum goes through linear ops to the same gradient as a completed one") {
  on_ranks([](Communicator& comm) {
    const int me = number(comm);
    const Var mask = replicated_constant(less(data_of(0, {2, 3}, 5), Tensor::zeros({2, 3}, DType::f64)));
    const auto weight = [&](Tape& tape) { return tape.constant(data_of(me, {8}, 6)); };
    const auto rest = [&](const Var& x) {
      return reshape(concat({where(mask, x, x * 2), flip(slice(x, 0, 0, 1), 1) - slice(x, 0, 1, 2)}, 0), {9});
    };
    const auto by_x = [&](bool late) {
      Tape tape;
      const Var x = tape.watch(data_of(me, {2, 3})), part = as_partial(x, comm);
      const Var y = late ? all_reduce(rest(part), comm) : rest(all_reduce(part, comm));
      return tape.gradient(sum(square(slice(y, 0, 0, 8)) * weight(tape)), {x})[0];
    };
    expect_close(by_x(true), by_x(false));
  });
}

TEST_CASE("a tape tracks two groups, with samples sharded over one and features over the other") {
  run_ranks(4, [](Communicator& world) {
    const int me = number(world), column = me % 2, row = me / 2;
    const auto samples = world.split(column), features = world.split(row);  // across the rows, within a row
    const auto batch = [](int r) { return data_of(r, {2, 4}); };
    const Parameter up("up", data_of(column, {4, 3}, 1)), down("down", data_of(column, {3, 2}, 2)),
        bias("bias", data_of(0, {2}, 3));
    Gradients whole;
    Tape one, tape;

    Parameter all_up("all up", concat({data_of(0, {4, 3}, 1), data_of(1, {4, 3}, 1)}, 1).value());
    Parameter all_down("all down", concat({data_of(0, {3, 2}, 2), data_of(1, {3, 2}, 2)}, 0).value());
    const Var every = one.constant(concat({batch(0), batch(1)}, 0).value());
    const Var out = add_along(matmul(tanh(matmul(every, one.watch(all_up))), one.watch(all_down)), one.watch(bias), -1);
    one.backward(sum(square(out)), whole);

    const Var x = with_placement(tape.constant(batch(row)), *features, R);
    const Var first = with_placement(tape.watch(up), *features, V),
              second = with_placement(tape.watch(down), *features, V);
    const Var part = as_partial(matmul(tanh(matmul(x, first)), second), *features);
    expect(placement_of(part, *samples) == V && placement_of(part, *features) == P,
           "parts of a sum over features, for each sample");
    expect_refusal([&] { square(part); }, {"square: it is not linear"});
    expect_refusal([&] { add_along(part, tape.watch(bias), -1); },
                   {"add_along: input 2, which is Replicated", "once per rank"});
    expect_refusal([&] { all_gather(part, *features); }, {"all_gather: its input is Partial"});
    const Var y = add_along(all_reduce(part, *features), tape.watch(bias), -1);
    expect(placement_of(y, *samples) == V && placement_of(y, *features) == R, "the sum over features, for each sample");
    const Var share = sum(square(y)), loss = all_reduce(share, *samples);
    expect(placement_of(loss, *samples) == R && placement_of(loss, *features) == R, "one loss");
    expect_refusal([&] { all_reduce(loss, *features); }, {"all_reduce: its input is Replicated"});

    const Var ends[] = {share, loss, all_reduce_equal(share, *samples), as_partial(share, *samples)};
    for (const Var& end : ends) {
      Gradients grads;
      tape.backward(end, grads, Keep::tape);
      const auto mine = [&](const Parameter& p, int axis) { return slice(whole[p], axis, 3 * column, 3 * column + 3); };
      expect_close(samples->all_reduce(grads[up]), mine(all_up, 1));
      expect_close(samples->all_reduce(grads[down]), mine(all_down, 0));
      expect_close(world.all_reduce(grads[bias]), whole[bias]);
    }
  });
}

TEST_CASE("the gradient of a Replicated parameter is Partial, so a penalty on it needs a sum first") {
  on_ranks([](Communicator& comm) {
    const Parameter w("w", data_of(0, {3}));
    const auto data = [](int r) { return data_of(r, {3}, 1); };
    Gradients whole;
    Tape one;
    const Var v = one.watch(w);
    const Var all = total(comm, [&](int r) { return sum(sin(v * one.constant(data(r)))); });
    one.backward(all + sum(square(one.gradient(all, {v}, Graph::create)[0])), whole);
    for (const bool summed : {false, true}) {
      Tape tape;
      const Var u = tape.watch(w), share = sum(sin(u * tape.constant(data(number(comm))))),
                loss = all_reduce(share, comm);
      const Var part = tape.gradient(summed ? loss : share, {u}, Graph::create)[0];
      expect(placement_of(part, comm) == P, "a Replicated parameter's gradient is " + text(placement_of(part, comm)));
      expect_refusal([&] { square(part); },
                     {"square: it is not linear, and what one rank holds of a Partial input is a part",
                      "complete the pending sum with all_reduce or reduce_scatter first"});
      Gradients grads;
      tape.backward(loss + sum(square(all_reduce(part, comm))), grads);
      expect_close(comm.all_reduce(grads[w]), whole[w]);
    }
  });
}

TEST_CASE("the gradient of an Invariant value is Invariant, so a penalty on it needs no communication") {
  on_ranks([](Communicator& comm) {
    const auto data = [](int r) { return data_of(r, {3}, 1); };
    Tape one, tape;
    const Var x = tape.watch(data(number(comm))), y = one.watch(x.value());
    const Var sums = total(comm, [&](int r) { return r == number(comm) ? y : one.constant(data(r)); });
    const Var equal = all_reduce_equal(x, comm);
    const Var slope = tape.gradient(sum(exp(equal)), {equal}, Graph::create)[0];
    expect(placement_of(slope, comm) == I, "an Invariant value's gradient is " + text(placement_of(slope, comm)));
    const Var expected = one.gradient(sum(square(one.gradient(sum(exp(sums)), {sums}, Graph::create)[0])), {y})[0];
    expect_close(tape.gradient(sum(square(slope)), {x})[0], expected);
  });
}
