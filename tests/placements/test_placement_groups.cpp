// SPDX-License-Identifier: Apache-2.0
// Several groups of ranks on one tape: how often a loss on them counts.
#include "tests/support/on_ranks.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;

namespace {

using namespace placement_letters;

double seed_of(Tape& tape, const Var& loss) { return tape.gradient(loss, {loss})[0].value().item(); }

// The seed of a scalar loss on a tape that knows these groups, in this order.
double seed_over(std::initializer_list<const Communicator*> groups) {
  const Parameter w("w", scalar(2));
  Tape tape;
  for (const Communicator* group : groups) declare_group(tape, *group);
  return seed_of(tape, square(tape.watch(w)));
}

}  // namespace

TEST_CASE("a loss on a group and a nested group counts once, in whatever order the tape learns of them") {
  on_ranks({1, 2, 3, 4, 5}, [](Communicator& world) {
    const auto half = world.split(number(world) % 2), again = world.duplicate(), alone = world.split(number(world));
    const double once = 1.0 / world.size();
    expect(seed_over({&world}) == once, "one group");
    expect(seed_over({&world, half.get()}) == once, "the larger first");
    expect(seed_over({half.get(), &world}) == once, "the smaller first");
    expect(seed_over({&world, again.get()}) == once, "the same ranks twice");
    expect(seed_over({again.get(), half.get(), &world}) == once, "three groups");
    expect(seed_over({alone.get(), half.get(), alone.get()}) == 1.0 / half->size(), "a rank by itself");
  });
}

TEST_CASE("two groups that share one rank are the axes of a grid") {
  run_ranks(6, [](Communicator& world) {
    const auto row = world.split(number(world) / 3), column = world.split(number(world) % 3);
    expect(seed_over({row.get(), column.get()}) == 1.0 / 6, "all of the grid");
    expect(seed_over({row.get(), column.get(), &world}) == 1.0 / 6, "all of the grid, and the world");
    expect(seed_over({&world, row.get(), column.get()}) == 1.0 / 6, "the world, and all of the grid");
  });
}

TEST_CASE("a program over a world and two halves has the gradient of one process") {
  on_ranks({2, 3, 5}, [](Communicator& world) {
    const auto half = world.split(number(world) % 2);
    const Parameter w("w", data_of(0, {3}));
    const auto share = [&](Tape& tape, int r) { return sum(sin(tape.watch(w) * tape.constant(data_of(r, {3}, 1)))); };
    const auto my_half = [&](Tape& tape) {
      return total(*half, [&](int r) { return share(tape, half->global({r}).value); });
    };
    const auto penalty = [](Tape& tape, const Parameter& p) { return sum(square(tape.watch(p))); };
    Gradients whole, of_half, grads, over_half;
    Tape one, other, tape, second;
    one.backward(total(world, [&](int r) { return share(one, r); }) + penalty(one, w), whole);
    other.backward(square(my_half(other)) + penalty(other, w), of_half);

    declare_group(tape, *half);
    const Var loss = all_reduce(share(tape, number(world)), world) + penalty(tape, w);
    tape.backward(loss, grads);  // Varying over the half, because it has not been summed there
    expect_close(world.all_reduce(grads[w]), whole[w]);

    // Each half's own objective, on a tape that knows the world as well.
    declare_group(second, world);
    second.backward(square(all_reduce(share(second, number(world)), *half)) + penalty(second, w), over_half);
    expect_close(half->all_reduce(over_half[w]), of_half[w]);
  });
}

TEST_CASE("a loss over groups that overlap otherwise needs an explicit seed") {
  run_ranks(4, [](Communicator& world) {
    const int me = number(world);
    const auto first = world.split(me < 3 ? 0 : -1), last = world.split(me > 0 ? 0 : -1), half = world.split(me / 2);
    if (me == 1 || me == 2)
      expect_refusal(
          [&] {
            seed_over({first.get(), last.get()});
          },
          {"gradient: the loss is Replicated over ranks {0, 1, 2} and Replicated over ranks {1, 2, 3}, so it "
           "is not known how often it counts; pass a seed"});
    const Parameter w("w", scalar(2));
    Tape tape;
    const Var of_half = with_placement(square(tape.watch(w)), *half, R), part = with_placement(of_half, world, P);
    expect(placement_of(part, *half) == P && seed_of(tape, part) == 1, "a sum over the world is one over its halves");
    const Var known = with_placement(part, *half, R);
    expect_refusal([&] { seed_of(tape, known); }, {"the placement of the loss is unknown over ranks {0, 1, 2, 3}"});
  });
}
