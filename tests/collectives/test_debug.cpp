// SPDX-License-Identifier: Apache-2.0
// The debug mode finds and names mistakes that no type can detect.
#include "tests/support/on_ranks.h"
#include "weft/collectives/checks/debug.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/started.h"
#include "weft/engine/nn/norm_layers.h"
#include "weft/engine/ops/activation_checkpoint.h"
#include "weft/engine/ops/dropout.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;

namespace {

using namespace placement_letters;

// Expects an Error on every rank with all of these texts when a program computes with w (Replicated) and x (Varying)
// under debugging, and no error without it.
template <class F> void expect_found(F program, std::initializer_list<const char*> said, Site site = Site::here()) {
  on_ranks({2, 3, 5}, [&](Communicator& comm) {
    const Parameter w("w", data_of(0, {2, 3}));
    const auto run = [&](bool debugging) {
      Tape tape;
      std::unique_ptr<DebugRanks> debug;
      if (debugging) debug = std::make_unique<DebugRanks>(tape, comm);
      declare_group(tape, comm);
      const Var x = tape.constant(data_of(number(comm), {2, 3}, 1));
      Gradients grads;
      tape.backward(program(tape.watch(w), x, comm), grads);
    };
    run(false);
    expect_refusal([&] { run(true); }, said, site);
    run(false);  // no rank waits for another
  });
}

Var share(const Var& x, Communicator& comm) { return as_partial(sum(square(x)), comm); }

}  // namespace

TEST_CASE("debug mode names a parameter that differs by one bit on one rank, with the element and both values") {
  for (const int n : {2, 3, 5})
    run_ranks(n, [&](Communicator& comm) {
      Parameter w("layer.w", Tensor::full({2, 3}, 0.5, DType::f32)), v("layer.v", Tensor::full({3}, 1, DType::f32));
      if (number(comm) == n - 1) w.value.mutate<float>()[4] = std::nextafterf(0.5f, 1);
      Tape tape;
      const DebugRanks debug(tape, comm);
      Gradients grads;
      const auto program = [&] {
        const Var x = tape.constant(Tensor::full({3, 2}, 1)), y = matmul(x, tape.watch(w)) + 0;
        tape.backward(as_partial(sum(square(add_along(y, tape.watch(v), -1))), comm), grads);
      };
      const std::string rank = "0.50000006 on rank " + std::to_string(n - 1);
      expect_refusal(program,
                     {"debug: parameter 'layer.w', Replicated f32 (2, 3) (node 0) should be equal on all ranks",
                      "element (1, 1) is 0.5 on rank 0 and ", rank.c_str()});
      expect(!grads.has(v), "backward went on");
    });
}

TEST_CASE("debug mode finds a rank-dependent number where it enters a Replicated value") {
  expect_found([](auto w, auto x, auto& comm) { return share(exp(w * (1 + number(comm))) * x, comm); },
               {"debug: scale, Replicated f64 (2, 3) (node 1, made of Replicated) should be equal", "element (0, 0) is",
                "on rank 0 and", "on rank 1"});
}

TEST_CASE("debug mode tells parameters with the same name apart") {
  expect_found(
      [other = std::make_shared<Parameter>("w", data_of(0, {2, 3}, 5))](auto w, auto x, auto& comm) {
        return share(exp(w * number(comm)) * x * w.tape()->watch(*other), comm);
      },
      {"debug: scale, Replicated f64 (2, 3)"});
}

TEST_CASE("debug mode finds a differing Invariant value like a Replicated one") {
  expect_found(
      [](auto w, auto x, auto& comm) { return sum(all_reduce_equal(w * x, comm) * (number(comm) == 0 ? 2 : 1)); },
      {"debug: scale, Invariant f64 (2, 3) (node 3, made of Invariant) should be equal", "on rank 1"});
}

TEST_CASE("debug mode finds a rank-dependent constant where it enters a Replicated value") {
  expect_found(
      [](auto w, auto x, auto& comm) {
        const Var mask = replicated_constant(data_of((number(comm) + 1) / 2, {2, 3}, 7));
        return share(w * mask + x * mask, comm);
      },
      {"debug: input 2 of mul, Constant f64 (2, 3)", "element (0, 0) is"});
  expect_found(
      [](auto w, auto x, auto& comm) {
        return sum(as_partial(w * x, comm) * replicated_constant(data_of(number(comm), {2, 3}, 7)));
      },
      {"debug: input 2 of mul, Constant f64 (2, 3)", "element (0, 0) is"});
}

TEST_CASE("debug mode refuses dropout with per-rank keys on a Replicated value and allows it on a Varying one") {
  const auto dropped = [](const Var& v, Communicator& comm) {
    return dropout(v, 0.5, {3, static_cast<uint64_t>(number(comm))});
  };
  expect_found(
      [&](auto w, auto x, auto& comm) { return share(dropped(dropped(w, comm), comm) + dropped(x, comm), comm); },
      {"debug: input 2 of mul, Constant f64 (2, 3)", "is 2 on rank 0 and 0 on rank"});
}

TEST_CASE("debug mode finds a rank-dependent branch at the first op that differs") {
  expect_found([](auto w, auto x, auto& comm) { return share((number(comm) == 1 ? exp(w) : tanh(w)) * x, comm); },
               {"programs part", "rank 0: tanh, Replicated f64 (2, 3) (node 1, made of Replicated)", "rank 1: exp"});
  expect_found([](auto w, auto x, auto& comm) { return share(number(comm) == 0 ? w * w * x : w * x, comm); },
               {"programs part", "rank 0: mul", "rank 1: nothing more of the kind", "as_varying"});
}

TEST_CASE("debug mode finds a rank-dependent branch that skips a collective before that collective runs") {
  on_ranks({2, 3, 5}, [](Communicator& comm) {
    const Parameter w("w", data_of(0, {2, 3}));
    Tape tape;
    const DebugRanks debug(tape, comm);
    const auto program = [&] {
      const Var u = tape.watch(w), x = tape.constant(data_of(number(comm), {2, 3}));
      if (number(comm) != 0) all_gather(exp(u) * x, comm);
      Gradients grads;
      tape.backward(share(u * x, comm), grads);
    };
    expect_refusal(program, {"programs part", "rank 0: nothing more", "rank 1: exp"});
  });
}

TEST_CASE("debug mode finds a rank-dependent branch even if both paths compute the same values") {
  expect_found([](auto w, auto x,
                  auto& comm) { return share((number(comm) == 0 ? abs(square(w)) : relu(square(w))) * x, comm); },
               {"programs part", "rank 0: abs", "rank 1: relu"});
}

TEST_CASE("debug mode compares the programs before every collective") {
  const std::vector<void (*)(const Var&, Communicator&)> collectives = {
      [](const Var& x, Communicator& comm) { all_reduce(x, comm); },
      [](const Var& x, Communicator& comm) { shift(x, 1, comm); },
      [](const Var& x, Communicator& comm) { all_reduce(x, comm, ReduceOp::maximum); },
      [](const Var& x, Communicator& comm) { all_reduce(x, comm, ReduceOp::product); },
      [](const Var& x, Communicator& comm) { scan(x, comm, ReduceOp::minimum); },
      [](const Var& x, Communicator& comm) { start(AllGather{}, x, comm); },
      [](const Var& x, Communicator& comm) { all_reduce_equal(x, comm); },
      [](const Var& x, Communicator& comm) { all_gather_equal(x, Rows(static_cast<size_t>(comm.size()), 2), comm); },
      [](const Var& x, Communicator& comm) { vary(with_placement(x, comm, I), comm); }};
  for (const auto collective : collectives)
    on_ranks({2, 3}, [&](Communicator& comm) {
      const Parameter w("w", data_of(0, {2, 3}));
      Tape tape;
      const DebugRanks debug(tape, comm);
      const auto program = [&] {
        const Var wrong = tape.watch(w) * number(comm);
        collective(tape.constant(data_of(0, {2, 3})), comm);
        fail({"the collective was reached"});
      };
      expect_refusal(program, {"debug: scale, Replicated f64 (2, 3)"});
    });
}

TEST_CASE("debug mode names the differing value, not a later branch that depends on it") {
  expect_found(
      [](auto w, auto x, auto& comm) {
        const Var score = sum(w) * number(comm);
        return share(score.value().item() == 0 ? w * x : exp(w) * x, comm);
      },
      {"debug: scale, Replicated f64 ()"});
}

TEST_CASE("debug mode checks the claims of as_replicated and with_placement") {
  expect_found(
      [](auto w, auto x, auto& comm) {
        const Var own = w * Tensor(data_of(number(comm), {2, 3}));  // its placement is unknown
        return share(as_replicated(own, comm) * x, comm);
      },
      {"debug: as_replicated, Replicated f64 (2, 3) (node 2, made of unknown)"});
  expect_found(
      [](auto w, auto, auto& comm) {
        const Var own = w.tape()->watch(data_of(number(comm), {2, 3}, 2));
        return sum(w * with_placement(own, comm, R));
      },
      {"debug: a value declared by the program, Replicated f64 (2, 3) (node 1) should be equal"});
}

TEST_CASE("debug mode finds a missing all_reduce where its result is declared complete") {
  expect_found([](auto w, auto x, auto& comm) { return sum(w * w) * with_placement(sum(w * x), comm, R); },
               {"debug: sum of all, Replicated f64 () (node", "made of Varying)"});
}

TEST_CASE("debug mode finds per-rank running averages that are used as Replicated values") {
  on_ranks({2, 3, 5}, [](Communicator& comm) {
    BatchNorm norm("norm", 3, {.key = {5}, .dtype = DType::f64});
    const auto evaluated = [&](auto make) {
      Tape tape;
      DebugRanks debug(tape, comm);
      norm(make(tape), {.training = false});
      debug.compare();
    };
    const auto equal = [](Tape&) { return replicated_constant(data_of(0, {2, 3})); };
    const auto replicated = [&](Tape& tape) { return with_placement(tape.constant(data_of(0, {2, 3})), comm, R); };
    const auto own = [&](Tape& tape) { return tape.constant(data_of(number(comm), {2, 3})); };
    evaluated(replicated);
    norm(data_of(number(comm), {4, 3}), {.training = true});
    evaluated(equal);  // a constant is on no tape
    expect_refusal([&] { evaluated(replicated); }, {"debug: input 2 of sub_along, Constant f64 (3)", "element (0) is"});
    expect_refusal([&] { evaluated(own); }, {"debug: input 2 of mul, Constant f64 (3)", "element (0) is"});
  });
}

TEST_CASE("debug mode names a collective's result by the line of the call") {
  on_ranks({2, 3}, [](Communicator& comm) {
    Tape tape;
    const DebugRanks debug(tape, comm);
    const Var x = tape.constant(data_of(number(comm), {3}));
    const auto lie = [&] { with_placement(shift(x, 1, comm), comm, R); };
    const auto program = [&] {
      lie();
      all_reduce(x, comm);
    };
    expect_refusal(program, {"debug: permute, Replicated f64 (3)", "made of Varying, permute at ", "test_debug.cpp:"});
  });
}

TEST_CASE("debug mode compares gradients of Invariant values and of Partial sums") {
  on_ranks({2, 3, 5}, [](Communicator& comm) {
    const auto walk = [&](auto make) {
      Tape tape;
      const DebugRanks debug(tape, comm);
      const Var x = tape.watch(data_of(number(comm), {3}));
      const Var y = make(x);
      Gradients grads;
      tape.backward(y, data_of(number(comm), {3}, 9), grads);
    };
    expect_refusal([&] { walk([&](const Var& x) { return exp(all_reduce_equal(x, comm)); }); },
                   {"debug: gradient of exp, Invariant f64 (3) (node 2)", "element (0) is"});
    expect_refusal([&] { walk([&](const Var& x) { return as_partial(x * 3, comm); }); },
                   {"debug: gradient of as_partial, Partial f64 (3) (node 2)"});
    walk([&](const Var& x) { return all_reduce(x, comm); });
  });
}

TEST_CASE("debug mode finds a difference in a checkpoint's recomputation during backward") {
  expect_found(
      [](auto, auto x, auto& comm) {
        const auto scale = [&](auto v) {
          const Var sums = all_reduce(v[0], comm);
          return v[0].tape()->recomputing() ? sums * number(comm) : sums * 1;
        };
        return share(checkpoint(scale, {x}) * x, comm);
      },
      {"debug: scale, Replicated f64 (2, 3)"});
}

TEST_CASE("debug mode compares a tape over each of its groups") {
  run_ranks(4, [](Communicator& world) {
    const int me = number(world);
    const auto rows = world.split(me / 2), columns = world.split(me % 2);
    Tape tape;
    const DebugRanks along_rows(tape, *rows), along_columns(tape, *columns);
    const Var x = tape.constant(data_of(me, {3})), sums = all_reduce(x, *rows);
    exp(sums);  // differs between rows, not within one
    const auto program = [&] {
      exp(with_placement(sums * 1, *columns, R));
      all_reduce(x, *columns);
    };
    expect_refusal(program, {"debug: scale, Replicated f64 (3)", me % 2 == 0 ? "on rank 0 and" : "on rank 1 and",
                             me % 2 == 0 ? "on rank 2" : "on rank 3"});
  });
}
