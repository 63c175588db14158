// SPDX-License-Identifier: Apache-2.0
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/f64_vector.h"
#include "weft/engine/ops/activation_checkpoint.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/tape/record.h"

using namespace weft;
using Catch::Contains;

namespace {

// Types that a tape's arena cannot hold do not compile.
template <class T>
concept has_place = requires(Arena& arena) {
  arena.place_for<T>();
};
struct alignas(32) Wide {
  double x[4];
};
static_assert(has_place<double[4]> && !has_place<Wide> && !has_place<char[Arena::chunk_bytes + 1]>);

}  // namespace

TEST_CASE("a gradient flows back through a chain, and the terms of a value used twice are added") {
  Tape tape;
  Parameter p("p", vector({1, 2, 3}));
  const Var x = tape.watch(p);
  Gradients grads;
  tape.backward(sum(x * x + x), grads);
  CHECK(grads[p].values() == Values{3, 5, 7});
}

TEST_CASE("several losses, backward passes and tapes accumulate into one Gradients") {
  Parameter p("p", vector({1, 2}));
  Gradients grads;
  {
    Tape tape;
    const Var x = tape.watch(p);
    const Var first = sum(square(x)), second = sum(3 * x);
    tape.backward(first, grads, Keep::tape);
    tape.backward(second, grads, Keep::tape);
    tape.backward(first, grads);
  }
  CHECK(grads[p].values() == Values{7, 11});
  Tape another;
  another.backward(sum(another.watch(p)), grads);
  CHECK(grads[p].values() == Values{8, 12});
  grads.clear();
  CHECK_FALSE(grads.has(p));
}

TEST_CASE("every use of a consumed tape is refused with the same advice") {
  Tape tape;
  Parameter p("p", vector({1}));
  const Var x = tape.watch(p);
  const Var loss = sum(x);
  Gradients grads;
  tape.backward(loss, grads);
  const auto message = Contains("used up by an earlier backward; pass Keep::tape");
  CHECK_THROWS_WITH(tape.backward(loss, grads), message);
  CHECK_THROWS_WITH(tape.gradient(loss, {x}), message);
  CHECK_THROWS_WITH(tape.watch(p), message);
  CHECK_THROWS_WITH(x + x, message);
  CHECK(grads[p].values() == Values{1});
}

TEST_CASE("a query accumulates nothing, fires no hook and leaves the tape as it was") {
  Tape tape;
  Parameter p("p", vector({1, 2}));
  const Var x = tape.watch(p);
  const Var y = square(x), loss = sum(y);
  Gradients grads;
  int fired = 0;
  grads.after_accumulate([&](const Parameter&, const Tensor&) { ++fired; });
  const int64_t size = tape.size();
  CHECK(tape.gradient(loss, {x})[0].value().values() == Values{2, 4});
  CHECK(tape.gradient(loss, {y})[0].value().values() == Values{1, 1});
  CHECK(tape.size() == size);
  CHECK(fired == 0);
  CHECK_FALSE(grads.has(p));
  tape.backward(loss, grads);
  CHECK(fired == 1);
  CHECK(grads[p].values() == Values{2, 4});
}

TEST_CASE("a gradient with respect to a value that the result does not depend on is zero") {
  Tape tape;
  const Var x = tape.watch(vector({1, 2})), other = tape.watch(vector({5, 6, 7}));
  CHECK(tape.gradient(sum(x), {other, x})[0].value().values() == Values{0, 0, 0});
}

TEST_CASE("frozen parameters are recorded as constants, also when a checkpoint is recomputed") {
  for (const bool in_checkpoint : {false, true}) {
    Parameter p("p", vector({3})), q("q", vector({5}));
    Tape tape;
    const auto product = [&](std::span<const Var> x) { return x[0] * tape.watch(p) * tape.watch(q); };
    const auto of = [&](const Var& x) { return in_checkpoint ? checkpoint(product, {x}) : product(std::array{x}); };
    const Var x = tape.watch(vector({2}));
    Var through, within, after;
    {
      const Tape::Freeze frozen(tape, {&p});
      CHECK_FALSE(tape.watch(p).tracked());
      through = of(x);
      const Tape::Freeze both(tape, {&q});
      within = of(x);
    }
    after = of(x);
    CHECK((tape.watch(p).tracked() && tape.watch(q).tracked()));
    Gradients grads;
    CHECK(tape.gradient(sum(through + within), {x})[0].value().item() == 30);
    tape.backward(sum(through), grads, Keep::tape);
    CHECK_FALSE(grads.has(p));
    CHECK(grads[q].item() == 6);
    grads.clear();
    tape.backward(sum(through + within + after), grads);
    CHECK(grads[p].item() == 10);
    CHECK(grads[q].item() == 12);
  }
}

TEST_CASE("backward does not change its seed") {
  Tape tape;
  Parameter p("p", vector({1, 1}));
  const Var x = tape.watch(p);
  const Tensor seed = vector({2, 3});
  Gradients grads;
  tape.backward(x + x, seed, grads);
  CHECK(seed.values() == Values{2, 3});
  CHECK(grads[p].values() == Values{4, 6});
}

TEST_CASE("backward refuses a value that was changed in place after it was saved") {
  Parameter p("p", vector({1, 2}));
  Gradients grads;
  {
    Tape tape;
    const Var loss = sum(square(tape.watch(p)));
    *p.value.mutate<double>() = 7;
    CHECK_THROWS_WITH(tape.backward(loss, grads), Contains("backward of square") && Contains("changed in place"));
  }
  Tape tape;
  const Var loss = sum(tape.watch(p) * 2);  // its gradient does not use the old value
  *p.value.mutate<double>() = 8;
  tape.backward(loss, grads);
  CHECK(grads[p].values() == Values{2, 2});
}

TEST_CASE("backward releases saved values as it runs") {
  Tape tape;
  const Tensor held = vector({1, 2});
  Parameter p("p", vector({1, 1}));
  const Var loss = sum(tape.watch(p) * tape.constant(held));
  CHECK_FALSE(held.unshared());
  Gradients grads;
  bool released = false;
  grads.after_accumulate([&](const Parameter&, const Tensor&) { released = held.unshared(); });
  tape.backward(loss, grads);
  CHECK(released);  // released before the parameter's gradient is accumulated
}

TEST_CASE("a parameter watched twice is the same leaf, and its hook fires once") {
  Tape tape;
  Parameter p("p", vector({1, 2}));
  const Var loss = sum(tape.watch(p) * tape.watch(p));
  CHECK(tape.size() == 3);
  Gradients grads;
  int fired = 0;
  grads.after_accumulate([&](const Parameter&, const Tensor&) { ++fired; });
  tape.backward(loss, grads);
  CHECK(fired == 1);
  CHECK(grads[p].values() == Values{2, 4});
}

TEST_CASE("ops save nothing for inputs that need no gradient") {
  Tape tape;
  const Tensor held = vector({1, 2});
  const Var x = tape.watch(vector({3, 4}));
  const Var y = tape.constant(held) + x;
  CHECK(y.tracked());
  CHECK(held.unshared());
  CHECK_FALSE((tape.constant(held) * tape.constant(held)).tracked());
  CHECK((Var(held) * Var(held)).value().values() == Values{1, 4});
}

TEST_CASE("second and mixed derivatives come from differentiating a recorded gradient") {
  Tape tape;
  const Var x = tape.watch(vector({0.5, 2})), y = tape.watch(vector({3, 4}));
  const std::vector<Var> g = tape.gradient(sum(exp(x) * y), {x, y}, Graph::create);
  const std::vector<Var> h = tape.gradient(sum(g[0]), {x, y}, Graph::none);
  CHECK(h[0].value().values()[1] == Approx(4 * std::exp(2.0)));
  CHECK(h[1].value().values()[0] == Approx(std::exp(0.5)));
  Parameter w("w", vector({2}));
  Tape penalty;
  Gradients grads;
  const Var v = penalty.watch(w);
  penalty.backward(sum(square(penalty.gradient(sum(v * v * v), {v}, Graph::create)[0])), grads);  // (3w^2)^2
  CHECK(grads[w].values()[0] == Approx(36 * 8));
}

TEST_CASE("an unsupported third derivative of an elementwise op is refused") {
  Tape tape;
  const Var x = tape.watch(vector({1}));
  const Var first = tape.gradient(sum(tanh(x)), {x}, Graph::create)[0];
  const Var second = tape.gradient(sum(first), {x}, Graph::create)[0];
  CHECK_THROWS_WITH(tape.gradient(sum(second), {x}), Contains("third derivatives"));
}

TEST_CASE("detach stops a gradient, and straight_through redirects it") {
  Tape tape;
  const Var x = tape.watch(vector({1.2, 2.7}));
  CHECK(tape.gradient(sum(detach(x) * x), {x})[0].value().values() == Values{1.2, 2.7});
  const Var rounded = straight_through(round(x), x);
  CHECK(rounded.value().values() == Values{1, 3});
  CHECK(tape.gradient(sum(rounded * 5), {x})[0].value().values() == Values{5, 5});
}

TEST_CASE("a user-defined op is recorded and differentiated like any other") {
  static const Op cube_op{"cube", {{"", {{2}}, [](auto x) { return x[0]; }}}};
  const auto cube = [](const Var& x) {
    return record(cube_op, (detach(x) * detach(x) * detach(x)).value(),
                  from(x, [=](const Var& g) { return g * x * x * 3; }));
  };
  Tape tape;
  const Var x = tape.watch(vector({2, 3}));
  CHECK(tape.gradient(sum(cube(x)), {x})[0].value().values() == Values{12, 27});
}

TEST_CASE("misuse of tapes, seeds and losses is refused with an error that says what is wrong") {
  Tape tape, other;
  Gradients grads;
  const Var x = tape.watch(vector({1, 2})), y = other.watch(vector({1, 2}));
  CHECK_THROWS_WITH(x + y,
                    "add: input 2, f64 (2), belongs to another tape than those before; use its value(), or watch that "
                    "on this tape");
  CHECK_THROWS_WITH(tape.gradient(x, y, {x}), "gradient: the seed is on another tape");
  CHECK_THROWS_WITH(tape.backward(x, grads),
                    "backward: the loss must be a scalar, not (2); reduce it with sum or mean, or pass a seed");
  CHECK_THROWS_WITH(tape.backward(sum(y), grads), "backward: the loss is not on this tape");
  CHECK_THROWS_WITH(tape.backward(tape.constant(Tensor::full({}, 1)), grads),
                    Contains("depends on nothing that is watched"));
  CHECK_THROWS_WITH(tape.backward(x, vector({1}), grads), "backward: the seed is f64 (1), the loss f64 (2)");
  CHECK_THROWS_WITH(tape.backward(Var(), grads), "backward: the loss is an empty Var");
  CHECK_THROWS_WITH(tape.gradient(sum(x), {y}), "gradient: a Var to differentiate by is not watched on this tape");
  CHECK_THROWS_WITH(tape.watch(Tensor::zeros({2}, DType::i64)), "watch: only floating tensors have gradients, not i64");
  static const Op bad_op{"bad", {{"", {{2}}, [](auto v) { return v[0]; }}}};
  const Var bad = record(bad_op, x.value(), from(x, [](const Var& g) { return sum(g); }));
  CHECK_THROWS_WITH(tape.backward(sum(bad), grads), "backward of bad: the gradient is f64 () but the input is f64 (2)");
}

TEST_CASE("tapes on different threads do not affect one another") {
  std::vector<Values> results(4);
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < results.size(); ++t)
      threads.emplace_back([&, t] {
        Parameter p("p", vector({1.0 + static_cast<double>(t), 2}));
        Gradients grads;
        for (int step = 0; step < 50; ++step) {
          Tape tape;
          tape.backward(sum(square(tape.watch(p))), grads);
        }
        results[t] = grads[p].values();
      });
  }
  for (size_t t = 0; t < results.size(); ++t) CHECK(results[t] == Values{100.0 * (1 + static_cast<double>(t)), 200});
}
