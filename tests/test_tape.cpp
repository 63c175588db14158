#include <catch2/catch.hpp>
#include <thread>

#include "engine/ops/elementwise.h"
#include "engine/ops/matmul.h"
#include "engine/ops/reduce.h"
#include "engine/record.h"
#include "tests/message_of.h"

using namespace weft;
using Catch::Contains;

namespace {

// What a tape's arena has no place for is refused by the compiler.
template <class T>
concept has_place = requires(Arena& arena) {
  arena.place_for<T>();
};
struct alignas(32) Wide {
  double x[4];
};
static_assert(has_place<double[4]> && !has_place<Wide> && !has_place<char[Arena::chunk_bytes + 1]>);

Tensor vector(std::vector<double> values) {
  return Tensor::from({static_cast<int64_t>(values.size())}, values, DType::f64);
}
using Values = std::vector<double>;
}  // namespace

TEST_CASE("a gradient flows back through a chain and adds where a value is used twice") {
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

TEST_CASE("a consumed tape says so, whatever is tried with it") {
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

TEST_CASE("a query by something the result does not depend on gives zeros") {
  Tape tape;
  const Var x = tape.watch(vector({1, 2})), other = tape.watch(vector({5, 6, 7}));
  CHECK(tape.gradient(sum(x), {other, x})[0].value().values() == Values{0, 0, 0});
}

TEST_CASE("after_accumulate fires once per backward for each parameter that took part, after its last contribution") {
  Parameter a("a", vector({1, 2})), b("b", vector({3, 4})), unused("unused", vector({0}));
  Gradients grads;
  std::vector<std::string> fired;
  grads.after_accumulate(
      [&](const Parameter& p, const Tensor& sum) { fired.push_back(p.name + " " + text(sum.values()[0])); });
  Tape tape;
  const Var A = tape.watch(a), B = tape.watch(b);
  tape.watch(unused);
  const Var first = sum(A * B + A * A), second = sum(B);
  tape.backward(first, grads, Keep::tape);
  CHECK(fired == std::vector<std::string>{"b 1", "a 5"});
  fired.clear();
  tape.backward(second, grads);
  CHECK(fired == std::vector<std::string>{"b 2"});
}

TEST_CASE("a hook can be removed, and hooks can be added and removed while one is called") {
  Parameter p("p", vector({1}));
  std::string fired;
  auto grads = std::make_unique<Gradients>();
  const auto pass = [&] {
    Tape tape;
    tape.backward(sum(tape.watch(p)), *grads);
    return std::exchange(fired, "");
  };
  HookHandle first = grads->after_accumulate([&](const Parameter&, const Tensor&) { fired += "1"; }), third;
  HookHandle second = grads->after_accumulate([&](const Parameter&, const Tensor&) {
    fired += "2";
    second.remove();  // itself
    third.remove();
    for (int i = 0; i < 100; ++i) grads->after_accumulate([&](const Parameter&, const Tensor&) { fired += "+"; });
  });
  third = grads->after_accumulate([&](const Parameter&, const Tensor&) { fired += "3"; });
  HookHandle end = grads->after_backward([&] { fired += "."; });
  CHECK(pass() == "12.");
  CHECK(pass() == "1" + std::string(100, '+') + ".");
  first.remove();
  end.remove();
  first.remove();
  CHECK(pass() == std::string(100, '+'));
  HookHandle late = grads->after_backward([] {});
  grads.reset();
  late.remove();  // of something that is gone
  HookHandle().remove();
}

TEST_CASE("several gradients share a backward, and each parameter goes to the one that takes it") {
  Parameter a("a", vector({1})), b("b", vector({2})), c("c", vector({3}));
  Gradients first, second, all({&first, &second});
  first.take_only([&](const Parameter& p) { return &p == &a; });
  second.take_only([&](const Parameter& p) { return &p == &b; });
  std::string fired;
  first.after_accumulate([&](const Parameter& p, const Tensor&) { fired += p.name; });
  second.after_backward([&] { fired += "2"; });
  all.after_accumulate([&](const Parameter& p, const Tensor& sum) { fired += "(" + p.name + text(sum.item()) + ")"; });
  Tape tape;
  const Var A = tape.watch(a), B = tape.watch(b);
  tape.backward(sum(A * B), all, Keep::tape);
  CHECK(fired == "(b1)a(a2)2");
  CHECK((first[a].item() == 2 && second[b].item() == 1 && all[a].item() == 2 && all.has(b)));
  CHECK_FALSE((first.has(b) || second.has(a) || all.has(c)));
  CHECK_THROWS_WITH(tape.backward(sum(A * tape.watch(c)), all, Keep::tape),
                    Contains("c is not among the parameters that are trained here") && Contains("Tape::Freeze"));
  CHECK_THROWS_WITH(tape.backward(sum(tape.watch(c)), first), Contains("c is not among the parameters"));
}

TEST_CASE("frozen parameters are constants to what is recorded meanwhile, in a checkpoint also when it runs again") {
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

TEST_CASE("gradients handed to a hook or a caller are not changed by later passes") {
  Tape tape;
  Parameter p("p", vector({1}));
  const Var loss = sum(square(tape.watch(p)));
  Gradients grads;
  tape.backward(loss, grads, Keep::tape);
  const Tensor held = grads[p];
  tape.backward(loss, grads);
  CHECK(held.values() == Values{2});
  CHECK(grads[p].values() == Values{4});
}

TEST_CASE("a seed is not changed by the walk that starts with it") {
  Tape tape;
  Parameter p("p", vector({1, 1}));
  const Var x = tape.watch(p);
  const Tensor seed = vector({2, 3});
  Gradients grads;
  tape.backward(x + x, seed, grads);
  CHECK(seed.values() == Values{2, 3});
  CHECK(grads[p].values() == Values{4, 6});
}

TEST_CASE("a value changed in place before backward needs it is refused") {
  Parameter p("p", vector({1, 2}));
  Gradients grads;
  {
    Tape tape;
    const Var loss = sum(square(tape.watch(p)));
    *p.value.mutate<double>() = 7;
    CHECK_THROWS_WITH(tape.backward(loss, grads), Contains("backward of square") && Contains("changed in place"));
  }
  Tape tape;
  const Var loss = sum(tape.watch(p) * 2);  // does not need the old value
  *p.value.mutate<double>() = 8;
  tape.backward(loss, grads);
  CHECK(grads[p].values() == Values{2, 2});
}

TEST_CASE("what is saved for backward is released as it runs") {
  Tape tape;
  const Tensor held = vector({1, 2});
  Parameter p("p", vector({1, 1}));
  const Var loss = sum(tape.watch(p) * tape.constant(held));
  CHECK_FALSE(held.unshared());
  Gradients grads;
  bool released = false;
  grads.after_accumulate([&](const Parameter&, const Tensor&) { released = held.unshared(); });
  tape.backward(loss, grads);
  CHECK(released);  // already when the parameter's turn came
}

TEST_CASE("a parameter watched again is the same leaf, and its hook fires once") {
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

TEST_CASE("nothing is saved for inputs that need no gradient") {
  Tape tape;
  const Tensor held = vector({1, 2});
  const Var x = tape.watch(vector({3, 4}));
  const Var y = tape.constant(held) + x;
  CHECK(y.tracked());
  CHECK(held.unshared());
  CHECK_FALSE((tape.constant(held) * tape.constant(held)).tracked());
  CHECK((Var(held) * Var(held)).value().values() == Values{1, 4});
}

TEST_CASE("second and mixed derivatives come from differentiating a gradient") {
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

TEST_CASE("a third derivative of an elementwise op is refused, not wrong") {
  Tape tape;
  const Var x = tape.watch(vector({1}));
  const Var first = tape.gradient(sum(tanh(x)), {x}, Graph::create)[0];
  const Var second = tape.gradient(sum(first), {x}, Graph::create)[0];
  CHECK_THROWS_WITH(tape.gradient(sum(second), {x}), Contains("third derivatives"));
}

TEST_CASE("detach stops a gradient and straight_through redirects it") {
  Tape tape;
  const Var x = tape.watch(vector({1.2, 2.7}));
  CHECK(tape.gradient(sum(detach(x) * x), {x})[0].value().values() == Values{1.2, 2.7});
  const Var rounded = straight_through(round(x), x);
  CHECK(rounded.value().values() == Values{1, 3});
  CHECK(tape.gradient(sum(rounded * 5), {x})[0].value().values() == Values{5, 5});
}

TEST_CASE("a checkpoint gives the same gradients, keeps nothing, and runs its piece twice") {
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
  CHECK(runs == 1 + 1 + 2);  // forward once, then once for the query and once for backward
  CHECK(again[w].values() == plain[w].values());
}

TEST_CASE("checkpoints nest, and work when only a parameter inside needs a gradient") {
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

TEST_CASE("a checkpoint has several results, of which any may be used, and runs again once for all of them") {
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

TEST_CASE("one of a checkpoint's results can be asked for in a query, and what it was made of by another") {
  Tape tape;
  const Var x = tape.watch(vector({1, 2}));
  const Vars y = checkpoint([](auto v) { return Vars{v[0] * v[0], exp(v[0])}; }, {x});
  const std::vector<Var> g = tape.gradient(sum(y[0] * y[1]), {y[1], x, y[0]});
  CHECK(g[0].value().values() == Values{1, 4});
  CHECK(g[1].value().values()[1] == Approx((2 * 2 + 4) * std::exp(2.0)));
  CHECK(g[2].value().values()[0] == Approx(std::exp(1.0)));
}

TEST_CASE("a checkpoint that computes something else when it runs again is named") {
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

TEST_CASE("an op of a user's own is recorded and differentiated like any other") {
  static const Op cube_op{"cube", {{"", {{2}}, [](auto x) { return x[0]; }}}};
  const auto cube = [](const Var& x) {
    return record(cube_op, (detach(x) * detach(x) * detach(x)).value(),
                  from(x, [=](const Var& g) { return g * x * x * 3; }));
  };
  Tape tape;
  const Var x = tape.watch(vector({2, 3}));
  CHECK(tape.gradient(sum(cube(x)), {x})[0].value().values() == Values{12, 27});
}

TEST_CASE("mistakes are named") {
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

TEST_CASE("threads with a tape each do not disturb one another") {
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
