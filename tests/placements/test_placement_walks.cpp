// SPDX-License-Identifier: Apache-2.0
// Placements in walks: of recorded gradients, of values that a walk fills in, and of values that leave the tape.
#include "tests/support/on_ranks.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

using namespace weft;

namespace {

using namespace placement_letters;

void expect_placement_is(const Var& x, Communicator& comm, Placement placement, Site site = Site::here()) {
  expect(placement_of(x, comm) == placement, "is " + text(placement_of(x, comm)) + ", not " + text(placement), site);
}

}  // namespace

TEST_CASE("a Replicated value used by two Varying ones has a recorded gradient") {
  on_ranks({1, 2}, [](Communicator& comm) {
    const Parameter w("w", data_of(0, {3}));
    Tape tape;
    const Var u = tape.watch(w), x = tape.constant(data_of(number(comm), {3}, 1));
    placement_of(u, comm);  // the tape knows the group from here on
    expect_close(tape.gradient(sum(u * x + u * x), {u}, Graph::create)[0], 2 * Var(x.value()));
  });
}

TEST_CASE("detach keeps a value's placement") {
  on_ranks({2, 3}, [](Communicator& comm) {
    Tape tape;
    const Var x = tape.watch(data_of(number(comm), {3}));
    const Var all = all_reduce(sum(x * x), comm);
    expect_close(tape.gradient(all / detach(all), {x})[0], x.value() * (2 / Var(all.value()).value().item()));
  });
  on_ranks({2, 3}, [](Communicator& comm) {
    Tape tape;
    const Var part = as_partial(tape.watch(data_of(number(comm), {3})), comm);
    expect_refusal([&] { square(detach(part)); }, {"square: it is not linear"});
  });
}

TEST_CASE("concat of more than four inputs refuses an Invariant one among others") {
  on_ranks({2}, [](Communicator& comm) {
    Tape tape;
    const Var v = tape.watch(data_of(number(comm), {3})), equal = all_reduce_equal(v, comm), all = all_reduce(v, comm);
    expect_refusal([&] { concat({v, v, v, equal, all}, 0); }, {"concat", "meets an Invariant one"});
  });
}

TEST_CASE("the gradient of an independent value, or of a seeded one, has the dual placement") {
  on_ranks({2}, [](Communicator& comm) {
    const Parameter w("w", data_of(0, {3}));
    Tape tape;
    const Var x = tape.watch(data_of(number(comm), {3}));
    all_reduce(x, comm);
    expect_placement_is(tape.gradient(sum(x), {tape.watch(w)}, Graph::create)[0], comm, P);
  });
  on_ranks({2}, [](Communicator& comm) {
    const Parameter w("w", data_of(0, {3}));
    Tape tape;
    const Var x = tape.watch(data_of(number(comm), {3})), u = tape.watch(w);
    placement_of(x, comm);
    const Var g = tape.gradient(x * x, u, {x}, Graph::create)[0];
    expect_placement_is(tape.gradient(sum(g), {u}, Graph::create)[0], comm, P);
  });
}

TEST_CASE("a tape supports two gradient penalties with collectives") {
  on_ranks({1, 2}, [](Communicator& comm) {
    const Parameter w("w", data_of(0, {3}));
    Tape tape;
    const Var u = tape.watch(w), share = sum(sin(u * tape.constant(data_of(number(comm), {3}, 1))));
    for (int i = 0; i < 2; ++i) {
      const Var penalty = sum(square(all_reduce(tape.gradient(share, {u}, Graph::create)[0], comm)));
      Gradients grads;
      tape.backward(penalty, grads, Keep::tape);
    }
  });
}

TEST_CASE("a rank with a constant loss takes part in backward, even if the tape has no collective") {
  on_ranks([](Communicator& comm) {
    const Parameter w("w", data_of(0, {3}));
    Tape tape;
    declare_group(tape, comm);
    const Var own = tape.constant(data_of(number(comm), {3}, 1));
    const Var loss = number(comm) == 0 ? sum(own) : sum(square(tape.watch(w) * own));
    Gradients gradients;
    tape.backward(loss, gradients);
    expect(gradients.has(w) == (number(comm) > 0), "only a loss that depends on w has a gradient");
  });
}
