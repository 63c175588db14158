// SPDX-License-Identifier: Apache-2.0
// Checkpoints save nothing inside and are recomputed in backward.
#include "tests/support/catch.h"
#include "tests/support/f64_vector.h"
#include "tests/support/message_of.h"
#include "weft/engine/ops/activation_checkpoint.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;

TEST_CASE("a checkpoint gives the same gradients, saves nothing inside, and runs its function twice") {
  int runs = 0;
  Parameter w("w", vector({0.3, -0.2}));
  const auto piece = [&](std::span<const Var> x) {
    ++runs;
    return tanh(x[0] * x[0].tape()->watch(w));
  };
  const auto gradients = [&](bool checkpointed, Gradients& grads) {
    Tape tape;
    const Var x = tape.watch(vector({1, 2}));
    const Var y = checkpointed ? checkpoint(piece, {x}) : piece(std::vector<Var>{x});
    const Values by_x = tape.gradient(sum(square(y)), {x})[0].value().values();
    tape.backward(sum(square(y)), grads);
    return by_x;
  };
  Gradients plain, again;
  const Values direct = gradients(false, plain);
  CHECK(runs == 1);
  CHECK(gradients(true, again) == direct);
  CHECK(runs == 1 + 1 + 2);  // plain: 1; with a checkpoint: forward, query and backward
  CHECK(again[w].values() == plain[w].values());
}

TEST_CASE("checkpoints nest, and work if only a parameter inside needs a gradient") {
  Parameter w("w", vector({0.3, -0.2}));
  const auto inner = [&](std::span<const Var> x) { return tanh(x[0] * x[0].tape()->watch(w)); };
  const auto outer = [&](std::span<const Var> x) { return square(checkpoint(inner, {x[0]})); };
  Gradients nested, plain;
  Tape tape;
  tape.backward(sum(checkpoint(outer, {tape.constant(vector({1, 2}))})), nested);
  Tape direct;
  const Var x = direct.constant(vector({1, 2}));
  direct.backward(sum(square(tanh(x * direct.watch(w)))), plain);
  CHECK(nested[w].values() == plain[w].values());
}

TEST_CASE("a checkpoint with several results is recomputed once, whichever results are used") {
  int runs = 0;
  Parameter w("w", vector({0.3, -0.2}));
  const auto piece = [&](std::span<const Var> x) {
    ++runs;
    const Var y = tanh(x[0] * x[0].tape()->watch(w));
    const TopK best = sort(y, 0, true);
    return Vars{square(y), x[0] * y, best.values, best.indices, x[0], Var()};
  };
  const auto gradients = [&](bool checkpointed, const std::vector<size_t>& used, Gradients& grads) {
    Tape tape;
    const Var x = tape.watch(vector({1, 2}));
    const Vars y = checkpointed ? checkpoint(piece, {x}) : piece(std::vector<Var>{x});
    CHECK(y[3].value().values() == Values{0, 1});
    CHECK_FALSE(y[3].tracked());
    CHECK_FALSE(y[5].defined());
    Var loss = sum(x);
    for (const size_t i : used) loss = loss + sum(y[i] * y[i] * static_cast<double>(i + 1));
    runs = 0;
    tape.backward(loss, grads);
    CHECK(runs == (checkpointed && used.size() > 0 ? 1 : 0));
    return grads[x].values();
  };
  const std::vector<std::vector<size_t>> choices = {{}, {0}, {1}, {2}, {4}, {0, 1}, {1, 4}, {0, 1, 2, 4}};
  for (const std::vector<size_t>& used : choices) {
    Gradients plain, again;
    CHECK(gradients(true, used, again) == gradients(false, used, plain));
    CHECK(again.has(w) == plain.has(w));
    if (plain.has(w)) CHECK(again[w].values() == plain[w].values());
  }
}

TEST_CASE("one query gives gradients with respect to a checkpoint's results and to its input") {
  Tape tape;
  const Var x = tape.watch(vector({1, 2}));
  const Vars y = checkpoint([](auto v) { return Vars{v[0] * v[0], exp(v[0])}; }, {x});
  const std::vector<Var> g = tape.gradient(sum(y[0] * y[1]), {y[1], x, y[0]});
  CHECK(g[0].value().values() == Values{1, 4});
  CHECK(g[1].value().values()[1] == Approx((2 * 2 + 4) * std::exp(2.0)));
  CHECK(g[2].value().values()[0] == Approx(std::exp(1.0)));
}

TEST_CASE("a checkpoint whose recomputation differs is refused and named") {
  const auto message = [](auto piece) {
    Tape tape;
    Gradients grads;
    const Vars y = checkpoint(piece, {tape.watch(vector({1, 2}))});
    return message_of([&] { tape.backward(sum(y[0]), grads); });
  };
  CHECK(message([ran = 0](std::span<const Var> x) mutable { return Vars(ran++ == 0 ? 2 : 1, x[0] * 2); }) ==
        "backward of checkpoint: the piece had 2 results, and has 1 when it runs again");
  CHECK(message([ran = 0](std::span<const Var> x) mutable { return Vars{ran++ == 0 ? x[0] * 2 : sum(x[0])}; }) ==
        "backward of checkpoint: result 1 was f64 (2), and is f64 () when the piece runs again");
  Tape tape;
  CHECK_THROWS_WITH(checkpoint([](auto) { return Vars(); }, {tape.watch(vector({1}))}),
                    "checkpoint: the piece has no results");
}

TEST_CASE("a value is used inside a checkpoint and beside it") {
  const auto tanh_of = [](std::span<const Var> x) { return tanh(x[0]); };
  const auto twice = [&](std::span<const Var> x) { return checkpoint(tanh_of, {x[0]}) * x[0]; };
  const auto gradient = [&](auto use, bool checkpointed) {
    Tape tape;
    const Var x = tape.watch(vector({0.3, -0.7})), y = x * 2;
    const Var loss =
        use(y, [&](auto f, const Var& v) { return checkpointed ? checkpoint(f, {v}) : f(std::vector<Var>{v}); });
    return tape.gradient(loss, {x})[0].value().values();
  };
  const auto after = [&](const Var& y, auto run) { return sum(run(tanh_of, y) + y); };
  const auto before = [&](const Var& y, auto run) { return sum(y * run(tanh_of, y)); };
  const auto around = [&](const Var& y, auto run) { return sum(run(twice, y) + y * y); };
  const auto chain = [&](const Var& y, auto run) {
    const Var z = run(tanh_of, y) + y;
    return sum(run(tanh_of, z) + z + y);
  };
  CHECK(gradient(after, true) == gradient(after, false));
  CHECK(gradient(before, true) == gradient(before, false));
  CHECK(gradient(around, true) == gradient(around, false));
  CHECK(gradient(chain, true) == gradient(chain, false));
}
