// SPDX-License-Identifier: Apache-2.0
// Hooks that backward calls when gradients are complete.
#include "tests/support/catch.h"
#include "tests/support/f64_vector.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/tape/observer.h"

using namespace weft;
using Catch::Contains;

TEST_CASE("after_accumulate fires once per backward and used parameter, after its last contribution") {
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

TEST_CASE("hooks can be added and removed, also while a hook runs") {
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
  late.remove();  // its Gradients no longer exist
  HookHandle().remove();
}

TEST_CASE("one backward can fill several Gradients, and each parameter goes to the one that takes it") {
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

TEST_CASE("gradients passed to a hook or a caller are not changed by later passes") {
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

TEST_CASE("gradients are the same where pullbacks write them in their places") {
  Parameter w("w", vector({1, 2, 3, 4}).reshape({2, 2})), b("b", vector({5, 6})), gamma("gamma", vector({7, 8})),
      both("gamma and beta", vector({9, 10}));
  const std::vector<Parameter*> all = {&w, &b, &gamma, &both};
  const Tensor x = Tensor::normal({3, 2}, {1}, 0, 1, DType::f64), tokens = Tensor::from({3}, {1, 0, 1}, DType::i64);
  const auto backward = [&](int uses, Gradients& into) {
    Tape tape;
    Var loss = tape.constant(Tensor::zeros({}, DType::f64)), y = tape.constant(x);
    const Var W = tape.watch(w), B = tape.watch(b), G = tape.watch(gamma), both_of = tape.watch(both);
    for (int use = 0; use < uses; ++use) {
      y = layer_norm(layer_norm(linear(y, W, B), G, B), both_of, both_of);
      loss = loss + sum(exp(y)) + sum(square(gather_rows(W, tokens)));
    }
    tape.backward(loss, into);
  };
  for (const int uses : {1, 2, 3}) {
    Gradients plain, placed;
    Tensor memory = Tensor::full({10}, 100, DType::f64);
    placed.keep_in([&](const Parameter& p) {
      const int64_t begin = &p == &w ? 0 : &p == &b ? 4 : &p == &gamma ? 6 : 8;
      return memory.slice(begin, begin + p.value.size()).reshape(p.value.shape());
    });
    for (int pass = 0; pass < 2; ++pass) {
      backward(uses, plain);
      backward(uses, placed);
      for (const Parameter* p : all) CHECK(placed[*p].values() == plain[*p].values());
      CHECK(placed[w].data() == memory.data());
    }
  }
}

TEST_CASE("gradients in one memory are summed in their places, and seen there by observers") {
  Parameter a("a", vector({1, 1})), b("b", vector({1, 1}));
  Tensor memory = vector({100, 100, 100, 100});
  Gradients gradients;
  gradients.keep_in([&](const Parameter& p) { return &p == &a ? memory.slice(0, 2) : memory.slice(2, 4); });
  struct Reads : Tape::Observer {
    std::vector<double> seen;
    void arrived(const Var& g, const std::string& of, int64_t, Placements) override {
      if (of.starts_with("parameter")) seen.push_back(g.value().values()[0]);
    }
    void watched(const Var&, const Parameter*) override {}
    void computed(const Var&, const Op&, std::span<const Var* const>) override {}
    void placement_changed(const Var&) override {}
    void walk_begins(bool) override {}
    void walk_ends(bool) override {}
    void collective_begins(const void*, const std::string&) override {}
  };
  for (int pass = 1; pass <= 2; ++pass) {
    Tape tape;
    Reads reads;
    tape.observe(reads);
    const Var A = tape.watch(a), B = tape.watch(b);
    Var loss = sum(A + 2 * B);
    for (const double more : {4.0, 8.0}) loss = loss + sum(more * A + 2 * more * B);
    tape.backward(loss, gradients);
    CHECK(reads.seen == std::vector<double>{26, 13});
    CHECK(memory.values() == std::vector<double>{13.0 * pass, 13.0 * pass, 26.0 * pass, 26.0 * pass});
  }
}
