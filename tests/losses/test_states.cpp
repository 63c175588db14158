// SPDX-License-Identifier: Apache-2.0
// Metric states that are combined over ranks.
#include "tests/support/counted_transport.h"
#include "tests/support/uneven_rows.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/run_ranks.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/metrics/states.h"

using namespace weft;

TEST_CASE("metric states of every kind cover all ranks, uneven and empty ones too, with the same bits on each") {
  on_ranks({1, 2, 3, 5, 8}, [](Communicator& comm) {
    const int me = number(comm);
    Tape tape;
    const Var x = tape.watch(part(me, {2, 3})), y = tape.watch(part(me, {}, 1)), z = tape.watch(data_of(me, {2}, 2));
    States states(comm);
    const auto cat = states.cat("cat", x), vector = states.cat("vector", y);
    const auto low = states.min("low", x), high = states.max("high", y);
    const auto sum = states.sum("sum", z), mean = states.mean("mean", z, me + 1), stack = states.stack("stack", z);
    cat.update(x * 2.0);
    sum.update(z * z);
    mean.update(z * 3.0, 2);
    low.update(x - 1);
    expect_refusal([&] { cat.value(); }, {"'cat' has no value before exchange()"});
    states.exchange();

    std::vector<Var> twice, all_z, weighted;
    double weight = 0;
    for (int r = 0; r < comm.size(); ++r) {
      const Var own = part(r, {2, 3}), theirs = data_of(r, {2}, 2);
      twice.insert(twice.end(), {own, own * 2.0});
      all_z.push_back(theirs);
      weighted.push_back(theirs * (r + 1.0 + 6.0));
      weight += r + 3;
    }
    expect_close(cat.value(), concat(twice, 0));
    expect_close(vector.value(), whole(comm, {}, 1));
    expect_close(low.value(), min(whole(comm, {2, 3}), 0) - 1);
    expect_close(high.value(), max(whole(comm, {}, 1)));
    expect_close(stack.value(), weft::stack(all_z, 0));
    expect_close(sum.value(), total(comm, [&](int r) { return all_z[r] + square(all_z[r]); }));
    expect_close(mean.value(), total(comm, [&](int r) { return weighted[r]; }) / weight);
    for (const auto& state : {cat, vector, low, high, stack, sum, mean}) {
      expect_same_bits(state.value().value(), comm.broadcast(state.value().value(), {0}));
      expect(placement_of(state.value(), comm) == Placement::replicated, text(placement_of(state.value(), comm)));
    }
  });
}

TEST_CASE("a sum state has the bits of an all_reduce, whatever is exchanged with it") {
  on_ranks({1, 2, 3, 5, 8}, [](Communicator& comm) {
    const Tensor mine = data_of(number(comm), {40}, 0, DType::f32), one = mine.slice(3, 4);
    const Tensor expected = comm.all_reduce(mine);
    for (const bool beside : {false, true})
      for (const bool rows : {false, true}) {
        States states(comm);
        const auto sum = states.sum("sum", mine);
        if (beside) states.max("high", mine);
        if (rows) states.cat("rows", mine.slice(0, rows_on(number(comm))));
        states.exchange();
        expect_same_bits(sum.value().value(), expected);
      }
    States states(comm);
    const auto sum = states.sum("sum", one);
    states.cat("rows", one);
    states.exchange();
    expect_same_bits(sum.value().value(), comm.all_reduce(one));
  });
}

TEST_CASE("the number of collectives depends on the kinds of metric states, not on the data") {
  for (const bool anything : {false, true})
    CHECK_NOTHROW(run_ranks(3, [=](std::unique_ptr<Transport> transport) {
      int collectives = 0;
      Communicator comm(std::make_unique<CountedTransport>(std::move(transport), collectives));
      const int64_t n = anything ? rows_on(number(comm)) : 0;
      const auto cost = [&](auto collect) {
        Tape tape;
        const Var x = tape.watch(data_of(number(comm), {n, 2}));
        States states(comm);
        const auto state = collect(states, x);
        collectives = 0;
        states.exchange();
        const int forward = collectives;
        tape.gradient(sum(state.value()), Var(scalar(1)), {x});
        return std::pair{forward, collectives - forward};
      };
      const auto sums = [](States& states, const Var& x) {
        states.mean("mean", sum(x, 0), 0);
        return states.sum("sum", sum(x, 0));
      };
      const auto extremes = [&](States& states, const Var& x) {
        states.min("low", x);
        sums(states, x);
        return states.max("high", x);
      };
      const auto rows = [&](States& states, const Var& x) {
        states.cat("more", x);
        extremes(states, x);
        return states.cat("rows", x);
      };
      expect(cost(sums) == std::pair{1, 1}, "sums");
      expect(cost(extremes) == std::pair{1, 1}, "extremes");
      expect(cost(rows) == std::pair{2, 1}, "rows");
    }));
}

TEST_CASE("ranks and rows that tie for a metric state's extreme share its gradient equally") {
  on_ranks({3}, [](Communicator& comm) {
    const std::vector<Tensor> values = {row_of({5, 5, 1}), row_of({}), row_of({2, 5})},
                              shares = {row_of({0.25, 0.25, 0}), row_of({}), row_of({0, 0.5})};
    const auto me = static_cast<size_t>(number(comm));
    for (const double sign : {1.0, -1.0}) {
      Tape tape;
      const Var x = tape.watch(values[me]), y = x * sign;
      States states(comm);
      const auto extreme = sign > 0 ? states.max("high", y) : states.min("low", y);
      states.exchange();
      // Every rank uses it, rank r r + 1 times: 1 + 2 + 3 times in all.
      const Var g = tape.gradient(extreme.value() * sign * (number(comm) + 1.0), Var(scalar(1)), {x})[0];
      expect_close(extreme.value(), scalar(5 * sign));
      expect_close(g, Var(shares[me]) * 6.0);
    }
  });
}

TEST_CASE("NaN wins an extreme state and makes its gradient NaN on every rank") {
  on_ranks({1, 3}, [](Communicator& comm) {
    Tape tape;
    const Var x = tape.watch(row_of({1, number(comm) == 0 ? NAN : 2}));
    States states(comm);
    const auto high = states.max("high", x);
    states.exchange();
    expect(std::isnan(high.value().value().item()), "NaN is lost");
    for (const double g : tape.gradient(high.value(), Var(scalar(1)), {x})[0].value().values())
      expect(std::isnan(g), "the gradient is " + std::to_string(g));
  });
}

TEST_CASE("a mean state ignores NaN without weight, and is zero with zero gradient if nothing counts") {
  on_ranks({1, 2, 3}, [](Communicator& comm) {
    for (const bool nothing : {false, true}) {
      const bool counts = number(comm) == comm.size() - 1 && !nothing;
      Tape tape;
      const Var x = tape.watch(row_of({counts ? 4.0 : NAN, counts ? 6.0 : 7.0}));
      States states(comm);
      const auto mean = states.mean("mean", x, counts ? 5 : 0);
      states.exchange();
      expect_same_bits(mean.value().value(), nothing ? row_of({0, 0}) : row_of({4, 6}));
      const double expected = counts ? comm.size() : 0;  // every rank uses it once
      expect_close(tape.gradient(sum(mean.value()), Var(scalar(1)), {x})[0], row_of({expected, expected}));
    }
    States none(comm);
    const Tensor empty({0, 2}, DType::f64);
    const auto high = none.max("high", empty), rows = none.cat("rows", empty);
    none.exchange();
    expect_same_bits(high.value().value(), row_of({-INFINITY, -INFINITY}));
    expect(rows.value().shape() == Shape{0, 2}, text(rows.value().value()));
  });
}

TEST_CASE("metric states of bf16 values are accumulated in f32") {
  on_ranks({1, 3}, [](Communicator& comm) {
    Tape tape;
    const Var x = tape.watch(Tensor::full({2}, 1, DType::bf16));
    States states(comm);
    const auto count = states.sum("count", x);
    for (int i = 1; i < 400; ++i) count.update(x);  // bf16 cannot count beyond 256
    states.exchange();
    expect_same_bits(count.value().value(), Tensor::full({2}, 400 * comm.size(), DType::f32));
    expect(tape.gradient(sum(count.value()), Var(Tensor::full({}, 1)), {x})[0].dtype() == DType::bf16, "its gradient");
  });
}

TEST_CASE("metric states refuse values that cannot be combined") {
  on_ranks({1, 2}, [](Communicator& comm) {
    Tape tape;
    declare_group(tape, comm);
    const Var x = tape.constant(Tensor::zeros({2, 3}, DType::f64));
    States states(comm);
    expect_refusal([&] { states.exchange(); }, {"nothing to exchange"});
    const auto sum = states.sum("sum", x);
    const auto rows = states.cat("rows", x), stack = states.stack("stack", x);
    const Var narrow = tape.constant(Tensor::zeros({3, 2}, DType::f64));
    expect_refusal([&] { sum.update(narrow); }, {"'sum' has shape (2, 3)", "updated with (3, 2)"});
    expect_refusal([&] { rows.update(narrow); }, {"'rows' has rows (3)", "updated with (3, 2)"});
    expect_refusal([&] { rows.update(tape.constant(scalar(1))); }, {"'rows' has rows (3)", "updated with ()"});
    expect_refusal([&] { states.max("one", tape.constant(scalar(1))); }, {"'one' is made of rows"});
    expect_refusal([&] { stack.update(x); }, {"'stack' has one part of each rank"});
    expect_refusal([&] { sum.update(x, 2); }, {"'sum' is no mean"});
    expect_refusal([&] { states.mean("mean", x, -1); }, {"'mean' has a weight of -1"});
    expect_refusal([&] { states.sum("f32", cast(x, DType::f32)); }, {"'f32' is f32, but the others are f64"});
    expect_refusal([&] { states.cat("counts", Tensor::zeros({2}, DType::i64)); }, {"'counts'", "floating", "i64"});
    expect_refusal([&] { states.sum("again", all_reduce(x, comm)); },
                   {"'again'", "Replicated", "each rank has of its own"});
    states.exchange();
    expect_refusal([&] { sum.update(x); }, {"'sum' comes after exchange()"});
    expect_refusal([&] { states.exchange(); }, {"exchange() is called once"});
  });
}
