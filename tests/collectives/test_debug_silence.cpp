// SPDX-License-Identifier: Apache-2.0
// The debug mode reports nothing for correct programs, whatever ranks do differently.
#include "tests/support/distributed_checks.h"
#include "tests/support/on_ranks.h"
#include "weft/collectives/checks/debug.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/activation_checkpoint.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;

TEST_CASE("debug mode reports nothing for any distributed case, in first and second order") {
  for (const DistributedCase* c : DistributedCase::all())
    for (const int n : {1, 2, 3, 5}) {
      INFO(c->name << " on " << n << " ranks");
      CHECK_NOTHROW(run_ranks(n, [&](Communicator& comm) {
        Tape tape;
        DebugRanks debug(tape, comm);
        const std::vector<Var> x = inputs_of(*c, comm, tape);
        const Var y = c->call(x, comm), u = tape.watch(data_of(number(comm), y.shape(), 9));
        const std::vector<Var> g = tape.gradient(y, u, x, Graph::create);
        for (const Var& first : g) tape.gradient(first, Var(data_of(number(comm), first.shape(), 10)), x);
        debug.compare();
      }));
    }
}

TEST_CASE("debug mode reports nothing when checkpoints are recomputed") {
  on_ranks([](Communicator& comm) {
    const Parameter w("w", data_of(0, {2, 3}));
    Tape tape;
    const DebugRanks debug(tape, comm);
    const Var x = tape.watch(data_of(number(comm), {2, 3}, 1));
    const Var y = checkpoint([&](auto v) { return square(all_reduce(v[0] * exp(v[0].tape()->watch(w)), comm)); }, {x});
    Gradients grads;
    tape.backward(as_partial(sum(y * x), comm), grads, Keep::tape);
    tape.backward(as_partial(sum(y * x), comm), grads);
  });
}

TEST_CASE("debug mode lets ranks differ in their Varying ops, Partial terms and gradients") {
  on_ranks({1, 2, 3, 5}, [](Communicator& comm) {
    const Parameter w("w", data_of(0, {2, 3}));
    Tape tape;
    const DebugRanks debug(tape, comm);
    const Var u = tape.watch(w);
    Var parts = as_partial(tape.constant(Tensor::zeros({2, 3}, DType::f64)), comm);
    for (int i = 0; i < number(comm); ++i) {
      const Var x = tape.constant(data_of(number(comm), {2, 3}, i));
      parts = parts + as_partial(exp(u * x), comm) * replicated_constant(Tensor::full({2, 3}, 3, DType::f64));
    }
    if (number(comm) == 0) parts = parts + as_partial(as_varying(u, comm) * tape.constant(data_of(0, {2, 3})), comm);
    const Var loss = sum(square(all_reduce(parts, comm) + u));
    const Var slope = tape.gradient(loss, {u}, Graph::create)[0];
    Gradients grads;
    tape.backward(loss + sum(square(all_reduce(slope, comm))), grads);
  });
}

TEST_CASE("debug mode compares a parameter among the ranks that use it") {
  on_ranks({2, 3, 5}, [](Communicator& comm) {
    Parameter own("own", data_of(0, {2, 3}));
    const auto program = [&](int users) {
      Tape tape;
      const DebugRanks debug(tape, comm);
      const Var x = tape.constant(data_of(number(comm), {2, 3}));
      const Var y = number(comm) >= comm.size() - users ? as_varying(tape.watch(own), comm) * x : x;
      Gradients grads;
      tape.backward(sum(square(all_reduce(y, comm))), grads);
    };
    program(1);
    if (number(comm) == comm.size() - 1) own.value = data_of(1, {2, 3});
    program(1);
    const std::string last = " on rank " + std::to_string(comm.size() - 1),
                      before = " on rank " + std::to_string(comm.size() - 2);
    expect_refusal([&] { program(2); }, {"parameter 'own', Replicated f64 (2, 3)", before.c_str(), last.c_str()});
  });
}

TEST_CASE("debug mode compares each group's collectives separately") {
  run_ranks(4, [](Communicator& world) {
    const int me = number(world);
    const auto rows = world.split(me / 2);
    Tape tape;
    DebugRanks debug(tape, world);
    const Var x = tape.constant(data_of(me, {3}));
    if (me / 2 == 0) all_reduce(x, *rows);
    debug.compare();
  });
}

TEST_CASE("WEFT_DEBUG turns debug mode on") {
  run_ranks(1, [](Communicator& comm) {
    for (const auto& [given, asked] : {std::pair("0", false), std::pair("1", true)}) {
      setenv("WEFT_DEBUG", given, 1);
      Tape tape;
      debug_if_asked(tape, comm);
      debug_if_asked(tape, comm);
      expect(tape.observers().size() == (asked ? 2 : 0), "WEFT_DEBUG is ignored, or one tape is observed twice");
      expect(tape.find_group(*comm.partition()) >= 0, "whether the tape knows the group depends on WEFT_DEBUG");
    }
    Tape tape;
    setenv("WEFT_DEBUG", "yes", 1);
    expect_refusal([&] { debug_if_asked(tape, comm); }, {"WEFT_DEBUG: 'yes' is not 0 or 1"});
    unsetenv("WEFT_DEBUG");
    debug_if_asked(tape, comm);
    expect(tape.observers().empty(), "debugging is not off by default");
  });
}

TEST_CASE("debug mode records a root's gradient on every rank for the collectives that follow") {
  on_ranks([](Communicator& comm) {
    Tape tape;
    const Var x = tape.watch(data_of(number(comm), {2, 3}));
    const Var y = scatter(all_gather(square(x), comm), {0}, comm);
    const Var g = tape.gradient(sum(square(y)), {x}, Graph::create)[0];
    expect_close(tape.gradient(sum(g), {x})[0], 12 * Var(square(x).value()));
  });
}
