// SPDX-License-Identifier: Apache-2.0
// Which uses of a tape and its Vars are allowed during a walk and after the tape's end.
#include <memory>

#include "tests/support/catch.h"
#include "tests/support/f64_vector.h"
#include "tests/support/message_of.h"
#include "weft/engine/ops/activation_checkpoint.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/tape/record.h"

using namespace weft;
using Catch::Contains;

namespace {

constexpr const char* over =
    "is of a tape that is gone, or of a checkpoint's second run, which is over; use its "
    "value(), or watch that again";

// Every use of a Var from an earlier step.
void expect_stale(const Var& old, Tape& tape) {
  const Var x = tape.watch(vector({3, 4}));
  Gradients grads;
  CHECK_THROWS_WITH(x + old, "add: input 2, f64 (2), " + std::string(over));
  CHECK_THROWS_WITH(old * x, "mul: input 1, f64 (2), " + std::string(over));
  CHECK_THROWS_WITH(old + old, "add: input 1, f64 (2), " + std::string(over));
  CHECK_THROWS_WITH(exp(old), "exp: input 1, f64 (2), " + std::string(over));
  CHECK_THROWS_WITH(where(Tensor::zeros({2}, DType::u8), x, old), Contains("where: input 2") && Contains(over));
  CHECK_THROWS_WITH(tape.backward(old, vector({1, 1}), grads), "backward: the loss, f64 (2), " + std::string(over));
  CHECK_THROWS_WITH(tape.gradient(old, {x}), Contains("scalar"));
  CHECK_THROWS_WITH(tape.gradient(old, Var(vector({1, 1})), {x}), Contains("gradient: the result") && Contains(over));
  CHECK_THROWS_WITH(tape.gradient(x, old, {x}), Contains("gradient: the seed") && Contains(over));
  CHECK_THROWS_WITH(tape.gradient(sum(x), {old}), Contains("gradient: a Var to differentiate by") && Contains(over));
  CHECK_THROWS_WITH(old.tape(), "tape: a Var, f64 (2), " + std::string(over));
  CHECK_THROWS_WITH(detach(old), Contains(over));
  CHECK_THROWS_WITH(with_placements(old, Placements(Placement::varying)), Contains(over));
  CHECK_THROWS_WITH(checkpoint([](auto v) { return v[0] * v[1]; }, {x, old}), Contains(over));
  Parameter p("p", vector({1, 2}));
  CHECK_THROWS_WITH(tape.substitute(p, old), Contains(over));
  CHECK(old.value().values() == Values{1, 4});
  CHECK((x * old.value()).value().values() == Values{3, 16});
  CHECK((x + tape.watch(old.value())).tracked());
}

}  // namespace

TEST_CASE("a Var of an earlier step is refused, even if a new tape has the same address and size") {
  Parameter w("w", vector({1, 2}));
  Var old, constant;
  for (int step = 0; step < 2; ++step) {
    Tape tape;
    const Var x = tape.watch(w);
    if (step > 0) {
      expect_stale(old, tape);
      expect_stale(constant, tape);
    }
    old = square(x);
    constant = tape.constant(vector({1, 4}));
  }
}

TEST_CASE("a Var of a destroyed tape is refused, with another tape in use or with none") {
  auto first = std::make_unique<Tape>(), second = std::make_unique<Tape>();
  const Var old = square(first->watch(vector({1, 2})));
  first.reset();
  expect_stale(old, *second);
  second.reset();
  CHECK_THROWS_WITH(old + old, Contains(over));
  CHECK_THROWS_WITH(old * Var(vector({1, 1})), Contains(over));
  CHECK(old.value().values() == Values{1, 4});
}

TEST_CASE("a Var of a consumed tape is refused on the next tape while both exist") {
  Tape first, second;
  Gradients grads;
  const Var x = first.watch(vector({1, 2})), loss = sum(x);
  first.backward(loss, grads);
  CHECK_THROWS_WITH(second.watch(vector({1, 2})) + x, Contains("add: input 2, f64 (2), belongs to another tape"));
  CHECK_THROWS_WITH(x + x, Contains("used up by an earlier backward"));
  CHECK_THROWS_WITH(with_placements(x, Placements(Placement::varying)), Contains("used up by an earlier backward"));
}

TEST_CASE("tapes are told apart, in whatever order they are created and destroyed") {
  std::vector<std::unique_ptr<Tape>> tapes;
  std::vector<Var> vars;
  for (int i = 0; i < 40; ++i) {
    tapes.push_back(std::make_unique<Tape>());
    vars.push_back(tapes.back()->watch(vector({1.0 + i})));
  }
  for (size_t i = 0; i < tapes.size(); i += 3) tapes[i].reset();
  for (size_t i = 0; i < tapes.size(); i += 6) tapes[i] = std::make_unique<Tape>();
  for (size_t i = 0; i < tapes.size(); ++i)
    if (i % 3 == 0)
      CHECK_THROWS_WITH(vars[i] * 2, Contains(over));
    else
      CHECK(tapes[i]->gradient(sum(square(vars[i])), {vars[i]})[0].value().item() == 2.0 * static_cast<double>(i + 1));
}

TEST_CASE("a Var kept from a checkpoint's recomputation is refused, and one from its first run is a constant") {
  Tape tape;
  const Var x = tape.watch(vector({1, 2}));
  std::vector<Var> kept;
  const Var y = checkpoint(
      [&](std::span<const Var> v) {
        kept.push_back(square(v[0]));
        return kept.back() * v[0];
      },
      {x});
  CHECK(tape.gradient(sum(y), {x})[0].value().values() == Values{3, 12});
  REQUIRE(kept.size() == 2);
  expect_stale(kept[1], tape);
  CHECK_FALSE((kept[0] * 2).tracked());
  CHECK(tape.gradient(sum(y * 2), {x})[0].value().values() == Values{6, 24});
}

TEST_CASE("a checkpoint that throws during recomputation leaves the tape unchanged") {
  Tape tape;
  const Var x = tape.watch(vector({1, 2}));
  bool fails = true;
  const Var y = checkpoint(
      [&](std::span<const Var> v) {
        const Var s = square(v[0]);
        if (std::exchange(fails, false)) return s;
        require(fails, "piece: it failed");
        return s;
      },
      {x});
  const int64_t size = tape.size();
  CHECK_THROWS_WITH(tape.gradient(sum(y), {x}), "backward of checkpoint: piece: it failed");
  CHECK(tape.size() == size + 1);  // the sum's node
  CHECK(tape.gradient(sum(x), {x})[0].value().values() == Values{1, 1});
}

TEST_CASE("a hook cannot walk the tape that is being walked") {
  for (const Keep keep : {Keep::nothing, Keep::tape}) {
    Tape tape, other;
    Parameter p("p", vector({1, 2})), q("q", vector({5, 6}));
    const Var x = tape.watch(p), loss = sum(square(x));
    Gradients grads, inner;
    std::vector<std::string> said;
    grads.after_accumulate([&](const Parameter&, const Tensor&) {
      said.push_back(message_of([&] { tape.gradient(loss, {x}); }));
      said.push_back(message_of([&] { tape.backward(loss, inner, Keep::tape); }));
      said.push_back(message_of([&] { tape.backward(loss, grads); }));
      other.backward(sum(square(other.watch(q))), inner);  // independent of the outer walk
    });
    tape.backward(loss, grads, keep);
    REQUIRE(said.size() == 3);
    for (const std::string& text : said) {
      CHECK_THAT(text, Contains("this tape is being walked, by the backward or gradient that a hook"));
      CHECK_THAT(text, Contains(said[0] == text ? "gradient: " : "backward: "));
    }
    CHECK(grads[p].values() == Values{2, 4});
    CHECK(inner[q].values() == Values{10, 12});
    CHECK_FALSE(inner.has(p));
  }
}

TEST_CASE("a pullback cannot walk its own tape") {
  static const Op curious_op{"curious", {{"", {{2}}, [](auto x) { return x[0]; }}}};
  Tape tape;
  const Var x = tape.watch(vector({1, 2}));
  const Var y = record(curious_op, vector({1, 2}),
                       from(x, [=](const Var& g) { return x.tape()->gradient(sum(square(x)), {x})[0] * g; }));
  CHECK_THROWS_WITH(tape.gradient(sum(y), {x}), Contains("backward of curious: gradient: this tape is being walked"));
  CHECK(tape.gradient(sum(x), {x})[0].value().values() == Values{1, 1});  // the walk is over
}

TEST_CASE("an after_backward callback can walk a kept tape, and is refused on a consumed one") {
  for (const Keep keep : {Keep::nothing, Keep::tape}) {
    Tape tape;
    Parameter p("p", vector({1, 2}));
    const Var x = tape.watch(p), loss = sum(square(x));
    Gradients grads;
    std::string said;
    Values asked;
    grads.after_backward([&] { said = message_of([&] { asked = tape.gradient(loss, {x})[0].value().values(); }); });
    tape.backward(loss, grads, keep);
    CHECK_THAT(said, Contains(keep == Keep::tape ? "nothing" : "used up by an earlier backward; pass Keep::tape"));
    if (keep == Keep::tape) CHECK(asked == Values{2, 4});
  }
}

TEST_CASE("a hook's computation on a kept tape has gradients") {
  Tape tape;
  Parameter p("p", vector({1, 2}));
  const Var x = tape.watch(p);
  Gradients grads, more;
  Var penalty;
  grads.after_accumulate([&](const Parameter&, const Tensor& sum_of_p) { penalty = sum(x * x * Var(sum_of_p)); });
  tape.backward(sum(square(x)), grads, Keep::tape);
  tape.backward(penalty, more);
  CHECK(more[p].values() == Values{4, 16});
}

TEST_CASE("a hook's result on a consumed tape, or in a recomputation, is refused later") {
  Parameter p("p", vector({1, 2}));
  Var kept;
  const auto walk = [&](Tape& tape, Keep keep, bool checkpointed) {
    const Var x = tape.watch(vector({3, 4}));
    const auto piece = [&](std::span<const Var> v) {
      return v[0] * (checkpointed && !v[0].tape()->recomputing() ? Var(p.value) : v[0].tape()->watch(p));
    };
    Gradients grads;
    grads.after_accumulate([&](const Parameter&, const Tensor&) { kept = x * x; });
    tape.backward(sum(checkpointed ? checkpoint(piece, {x}) : piece(std::vector{x})), grads, keep);
    CHECK(grads[x].values() == Values{1, 2});
  };
  Tape used_up, kept_tape;
  walk(used_up, Keep::nothing, false);
  CHECK_THROWS_WITH(kept * 2, Contains("used up by an earlier backward"));
  walk(kept_tape, Keep::tape, true);
  CHECK_THROWS_WITH(kept * 2, Contains(over));
}

TEST_CASE("hooks added by a hook fire from the next parameter and the next backward on") {
  Parameter a("a", vector({1})), b("b", vector({2}));
  Gradients grads;
  std::string fired;
  grads.after_accumulate([&](const Parameter& p, const Tensor&) {
    fired += "first:" + p.name + " ";
    for (int i = 0; i < 20; ++i) grads.after_accumulate([&](const Parameter& q, const Tensor&) { fired += q.name; });
  });
  int ends = 0;
  grads.after_backward([&] {
    for (int i = 0; i < 20; ++i) grads.after_backward([&] { ++ends; });
  });
  Tape tape;
  const Var A = tape.watch(a), B = tape.watch(b);
  tape.backward(sum(A * B), grads, Keep::tape);
  CHECK(fired == "first:b first:a " + std::string(20, 'a'));
  CHECK(ends == 0);
  tape.backward(sum(A), grads);
  CHECK(ends == 20);
}

TEST_CASE("backward gives gradients of watched tensors, summed over all passes on their tape") {
  Parameter p("p", vector({5, 6}));
  Gradients grads;
  Tape tape;
  const Tensor data = vector({1, 2});
  const Var x = tape.watch(data), y = tape.watch(data), unused = tape.watch(data), w = tape.watch(p);
  const Var loss = sum(x * y * w);
  tape.backward(loss, grads, Keep::tape);
  CHECK(grads[x].values() == Values{5, 12});
  CHECK(grads[y].values() == Values{5, 12});
  CHECK(grads[p].values() == Values{1, 4});
  CHECK(grads.has(x));
  CHECK_FALSE(grads.has(unused));
  const Tensor held = grads[x];
  tape.backward(sum(x), grads, Keep::tape);
  CHECK(grads[x].values() == Values{6, 13});
  CHECK(held.values() == Values{5, 12});
  CHECK(tape.gradient(loss, {x})[0].value().values() == Values{5, 12});  // a query accumulates nothing
  tape.backward(loss, Tensor::full({}, 2, DType::f64), grads);
  CHECK(grads[x].values() == Values{16, 37});
  grads.forget(y);
  CHECK_FALSE(grads.has(y));
  CHECK(grads.has(x));
  grads.clear();
  CHECK_FALSE(grads.has(x));
  CHECK_FALSE(grads.has(p));
}

TEST_CASE("a watched tensor's gradient outlives its tape and is released by the next backward") {
  Gradients grads;
  Var x;
  {
    Tape tape;
    x = tape.watch(vector({1, 2}));
    tape.backward(sum(square(x)), grads);
  }
  CHECK(grads[x].values() == Values{2, 4});
  Tape next, other;
  const Var y = next.watch(vector({3})), z = other.watch(vector({4}));
  next.backward(sum(y), grads, Keep::tape);
  other.backward(sum(z), grads);
  CHECK_FALSE(grads.has(x));
  CHECK(grads[y].values() == Values{1});
  CHECK(grads[z].values() == Values{1});
}

TEST_CASE("reading the gradient of a value that is not a watched tensor is refused with advice") {
  Tape tape;
  Parameter p("p", vector({1, 2}));
  const Var x = tape.watch(vector({3, 4})), w = tape.watch(p), y = x * w;
  Gradients grads;
  tape.backward(sum(y), grads);
  CHECK_THROWS_WITH(grads[w], "gradients: this Var is a parameter's; ask for the gradient of the parameter itself");
  const std::string none =
      "gradients: f64 (2) is not what tape.watch gave; ask tape.gradient for that of anything else";
  CHECK_THROWS_WITH(grads[y], none);
  CHECK_THROWS_WITH(grads.has(tape.constant(vector({1, 1}))), none);
  CHECK_THROWS_WITH(grads[Var(vector({1, 1}))], none);
}
