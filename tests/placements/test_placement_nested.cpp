// SPDX-License-Identifier: Apache-2.0
// Groups inside each other, groups that cross and axes of a grid: what a collective over one does to placements over
// the others, and what it refuses.
#include "tests/support/on_ranks.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/collectives/started.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;

namespace test_placement_nested {

using namespace placement_letters;

using Call = std::function<Var(const Var&, Communicator&)>;
using Calls = std::vector<std::pair<const char*, Call>>;

Rows even(const Var& x, const Communicator& comm) {
  return Rows(static_cast<size_t>(comm.size()), x.shape()[0] / comm.size());
}
Sources next(const Communicator& comm) {
  Sources source;
  for (int r = 0; r < comm.size(); ++r) source.push_back((r + 1) % comm.size());
  return source;
}

// Collectives that take values that all ranks hold, or each its own.
const Calls moves = {{"all_gather", [](auto& x, auto& c) { return all_gather(x, c); }},
                     {"start all_gather", [](auto& x, auto& c) { return start(AllGather{}, x, c).wait(); }},
                     {"gather", [](auto& x, auto& c) { return gather(x, {0}, c); }},
                     {"scatter", [](auto& x, auto& c) { return scatter(x, {0}, c); }},
                     {"broadcast", [](auto& x, auto& c) { return broadcast(x, {0}, c); }},
                     {"all_to_all", [](auto& x, auto& c) { return all_to_all(x, c); }},
                     {"permute", [](auto& x, auto& c) { return permute(x, next(c), c); }},
                     {"scan", [](auto& x, auto& c) { return scan(x, c); }},
                     {"exscan", [](auto& x, auto& c) { return exscan(x, c); }}};
// Conversions of values that all ranks hold.
const Calls conversions = {{"own_rows", [](auto& x, auto& c) { return own_rows(x, even(x, c), c); }},
                           {"keep_on", [](auto& x, auto& c) { return keep_on(x, {0}, c); }}};
const Calls sums = {{"all_reduce", [](auto& x, auto& c) { return all_reduce(x, c); }},
                    {"reduce_scatter", [](auto& x, auto& c) { return reduce_scatter(x, c); }},
                    {"reduce", [](auto& x, auto& c) { return reduce(x, {0}, c); }}};

Calls both(const Calls& a, const Calls& b) {
  Calls all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

// A claim that values are equal must be true of the values.
void expect_true(const Var& y, Communicator& comm, const char* what) {
  const Placement placement = placement_of(y, comm);
  if (placement != R && placement != I && placement != C) return;
  const Rows sizes = comm.rows_of(y.size());
  const Tensor all = comm.all_gather_v(y.value().reshape({y.size()}), sizes);
  for (int r = 0; r < comm.size(); ++r) {
    expect(sizes[static_cast<size_t>(r)] == y.size(), what);
    expect_same_bits(all.slice(r * y.size(), (r + 1) * y.size()), y.value().reshape({y.size()}));
  }
}

TEST_CASE("what a collective over half of the ranks makes of values that all hold is each half's own") {
  on_ranks({3, 4, 5, 8}, [](Communicator& world) {
    const auto half = world.split(number(world) % 2);
    for (const auto& [name, call] : both(moves, conversions)) {
      Tape tape;
      declare_group(tape, world);
      const Var x = with_placement(tape.watch(data_of(0, {12, 2})), world, R), y = call(x, *half);
      expect(placement_of(y, world) == V, name);
      expect_true(y, *half, name);
    }
  });
}

TEST_CASE("a value whose gradients are equal on all ranks cannot pass through a collective over some of them") {
  run_ranks(4, [](Communicator& world) {
    const auto half = world.split(number(world) % 2);
    const Calls vary_it = {{"vary", [](auto& x, auto& c) { return vary(x, c); }}};
    for (const auto& [name, call] : both(both(moves, conversions), vary_it)) {
      Tape tape;
      const Var x = with_placement(tape.watch(data_of(0, {12})), world, I);
      expect_refusal([&, &call = call] { call(x, *half); }, {"its input is Invariant over "});
    }
    for (const auto& [name, call] : sums) {
      Tape tape;
      const Var x = with_placement(tape.watch(data_of(number(world), {12})), world, P);
      expect_refusal(
          [&, &call = call] { call(x, *half); },
          {name, "its input is Partial over ranks {0, 1, 2, 3}, and would not be", "first complete the pending sum"});
    }
  });
}

TEST_CASE("a collective over all ranks refuses what is Invariant over half of them, and completes half a sum") {
  run_ranks(4, [](Communicator& world) {
    const auto half = world.split(number(world) % 2);
    const std::string mine = number(world) % 2 ? "{1, 3}" : "{0, 2}",
                      refused = "its input is Invariant over ranks " + mine + ", and would not be";
    for (const auto& [name, call] : both(moves, sums)) {
      Tape tape;
      const Var x = with_placement(tape.watch(data_of(number(world) % 2, {12})), *half, I);
      expect(placement_of(x, world) == V, "a half's own");
      expect_refusal([&, &call = call] { call(x, world); },
                     {name == std::string("start all_gather") ? "all_gather" : name, refused.c_str(),
                      "first vary() it over ranks"});
    }
    for (const auto& [name, call] : sums) {
      Tape tape;
      const Var x = as_partial(tape.watch(data_of(number(world), {12})), *half), y = call(x, world);
      expect(placement_of(y, *half) == placement_of(y, world), name);
      const Var all = total(world, [&](int r) { return Var(data_of(r, {12})); });
      if (name == std::string("all_reduce")) expect_close(y, all);
    }
    for (const auto& [name, call] : moves) {
      Tape tape;
      const Var x = as_partial(tape.watch(data_of(number(world), {12})), *half);
      expect_refusal([&, &call = call] { call(x, world); }, {"its input is Partial over ranks"});
    }
  });
}

TEST_CASE("a collective over one axis of a grid leaves placements over the other as they are") {
  on_ranks({4, 6, 8}, [](Communicator& world) {
    const int columns = 2;
    const auto row = world.split(number(world) / columns), column = world.split(number(world) % columns);
    for (const auto& [name, call] : both(moves, conversions))
      for (const Placement placement : {R, I}) {
        Tape tape;
        const Tensor values = data_of(number(*row), {24});  // equal along the columns
        const Var x = with_placement(with_placement(tape.watch(values), *row, R), *column, placement);
        const Var y =
            call(name == std::string("own_rows") || name == std::string("keep_on") ? broadcast(x, {0}, *row) : x, *row);
        expect(placement_of(y, *column) == placement, name);
        expect_true(y, *column, name);
        expect_true(y, *row, name);
      }
    Tape tape;
    const Var terms = as_partial(tape.watch(data_of(number(world), {24})), *column);
    expect(placement_of(all_gather(terms, *row), *column) == P, "a sum of rows is a row of sums");
    for (const ReduceOp op : {ReduceOp::maximum, ReduceOp::product})
      expect_refusal([&] { all_reduce(terms, *row, op); },
                     {"its input is Partial over ranks", "complete the pending sum"});
  });
}

TEST_CASE("groups that share one rank but are no axes keep no claims") {
  run_ranks(4, [](Communicator& world) {
    const int me = number(world);
    const auto pairs = world.split(me / 2), ring = world.split((me + 1) / 2 % 2);  // {0, 1} {2, 3}; {1, 2} {3, 0}
    for (const auto& [name, call] : moves) {
      Tape tape;
      const Tensor values = data_of((me + 1) / 2 % 2, {12});
      const Var x = with_placement(tape.watch(values), *ring, R), y = call(x, *pairs);
      expect(placement_of(y, *ring) == V, name);
    }
    Tape tape;
    const Var equal = with_placement(tape.watch(data_of((me + 1) / 2 % 2, {12})), *ring, I);
    expect_refusal([&] { all_gather(equal, *pairs); }, {"its input is Invariant over ranks", "first vary() it"});
  });
}

TEST_CASE("a group that is made after a collective gets no claims that the collective may have broken") {
  run_ranks(4, [](Communicator& world) {
    const auto half = world.split(number(world) / 2);
    Tape tape;
    const Parameter w("w", data_of(0, {12}));
    const Var y = scan(tape.watch(w), *half), all = all_gather(tape.watch(w), world);
    const auto later = world.split(number(world) % 2);
    expect(placement_of(y, *later) == V, "a scan differs between the ranks of a half");
    expect(placement_of(all, *later) == R, "all ranks hold the same");
    expect(placement_of(tape.watch(w), *later) == R, "a parameter");
  });
}

TEST_CASE("constants without a tape have the placements of what collectives make of them") {
  on_ranks({2, 3, 4}, [](Communicator& world) {
    const auto half = world.split(number(world) % 2);
    const Var x = replicated_constant(data_of(0, {12, 2}));
    for (Communicator* comm : {&world, half.get()}) {
      if (comm->size() == 1) continue;
      for (const auto& [name, call] : both(moves, conversions)) {
        const Var y = call(x, *comm);
        Tape tape;
        const Var on_tape = tape.watch(scalar(1)) * sum(y);
        expect_true(on_tape, world, name);
        expect_true(on_tape, *half, name);
      }
      for (const auto& [name, call] : sums)
        expect_refusal([&, &call = call] { call(x, *comm); }, {name, "all ranks hold this value already"});
      expect_refusal([&] { padded_rows(x, even(x, *comm), *comm); }, {"padded_rows: its input is Constant"});
    }
    // The rows of a constant are a rank's own, so their losses are shares, with the gradient of the whole.
    const Rows rows = even(x, world);
    const Parameter w("w", data_of(0, {12, 2}, 1));
    Tape tape, one;
    Gradients grads, whole;
    const Var mine = own_rows(tape.watch(w), rows, world) * own_rows(x, rows, world);
    tape.backward(share(sum(sin(mine)), 12, world), grads);
    one.backward(sum(sin(one.watch(w) * x)) / 12, whole);
    expect_close(world.all_reduce(grads[w]), whole[w]);
  });
}

TEST_CASE("a share is not divided again, and no mean is taken of the terms of a sum") {
  on_ranks({1, 2, 3}, [](Communicator& comm) {
    Tape tape;
    const Var once = share(sum(tape.watch(data_of(number(comm), {3}))), 3, comm);
    expect_refusal([&] { share(once, 3, comm); }, {"share: its input is Partial", "must not be divided again"});
    for (const auto& mean :
         Calls{{"all_reduce", [](auto&x, auto&c) { return all_reduce(x, c, ReduceOp::mean); }},
               {"reduce_scatter", [](auto&x, auto&c) { return reduce_scatter(x, c, ReduceOp::mean); }},
               {"reduce", [](auto&x, auto&c) { return reduce(x, {0}, c, ReduceOp::mean); }}})
      expect_refusal([&] { mean.second(once, comm); },
                     {mean.first, "its input is Partial", "a rank holds a term of a pending sum; take the sum"});
  });
}

}  // namespace test_placement_nested
