// SPDX-License-Identifier: Apache-2.0
// Sums of gradients that wait for others, and where they are read.
#include "tests/kernels/cuda_checks.h"
#include "tests/support/catch.h"
#include "tests/support/f64_vector.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/tape/record.h"

using namespace weft;

TEST_CASE("sums wait until one is asked for, and then all are computed, once") {
  const Tensor a = vector({1, 2}), b = vector({10, 20});
  Tensor place = vector({0, 0}), other = vector({7, 7}), unrelated = vector({5, 5});
  WaitingSums sums;
  sums.add({a, b, place});
  sums.add({other, b, other});
  sums.compute(unrelated);
  CHECK((place.values() == std::vector<double>{0, 0} && other.values() == std::vector<double>{7, 7}));
  sums.compute(other);
  CHECK((place.values() == std::vector<double>{11, 22} && other.values() == std::vector<double>{17, 27}));
  sums.compute();
  CHECK(other.values() == std::vector<double>{17, 27});
  sums.add({a, b, other});
  sums.drop();
  sums.compute();
  CHECK(other.values() == std::vector<double>{17, 27});
}

TEST_CASE("a large sum does not wait, nor do those before it") {
  const Tensor large = Tensor::full({1 << 17}, 3, DType::f64);
  Tensor small = vector({1}), place = Tensor::like(large);
  WaitingSums sums;
  sums.add({small, small, small});
  CHECK(small.item() == 1);
  sums.add({large, large, place});
  CHECK((small.item() == 2 && place.values() == std::vector<double>(1 << 17, 6)));
}

namespace {

// Two parameters with several uses each, and an early operation that looks at the gradients when backward comes to it.
struct Uses {
  Parameter a{"a", vector({1, 2})}, b{"b", vector({3, 4})};
  Tensor memory = vector({0, 0, 0, 0});
  Gradients gradients;

  explicit Uses(bool placed, bool steady = true) {
    if (placed)
      gradients.keep_in([this](const Parameter& p) { return &p == &a ? memory.slice(0, 2) : memory.slice(2, 4); },
                        steady);
  }
  void backward(const std::function<void()>& look) {
    Tape tape;
    const Var A = tape.watch(a);
    const Var early = A * 2;
    static const Op op{"look", {}, Algebra::linear};
    const Var seen = record(op, early.value(), from(early, [&look](const Var& g) {
                              look();
                              return g;
                            }));
    const Var B = tape.watch(b);
    const Var once = B * A, again = B * A, square = B * B;  // in this order, so that a sum of each waits at the end
    tape.backward(sum(seen + once + again + square), gradients);
  }
};

}  // namespace

TEST_CASE("a sum that waits is complete wherever it is read: in backward, in hooks, after it, in flat memory") {
  const auto [placed, steady] = GENERATE(std::pair(false, true), std::pair(true, false), std::pair(true, true));
  Uses uses(placed, steady);
  Gradients& gradients = uses.gradients;
  int passes = 1, arrivals = 0;
  const auto check = [&](const Parameter& p, const Tensor& sum) {
    const Tensor once = &p == &uses.a ? vector({8, 10}) : vector({8, 12});
    CHECK(sum.values() == std::vector<double>{passes * once.values()[0], passes * once.values()[1]});
  };
  SECTION("in a pullback") {
    uses.backward([&] { check(uses.b, gradients[uses.b]); });
  }
  SECTION("in hooks") {
    gradients.after_accumulate(check);
    uses.backward([] {});
  }
  SECTION("where it arrives, if it is asked for") {
    gradients.after_arrival([&](const Parameter& p) {
      ++arrivals;
      check(p, gradients[p]);
    });
    uses.backward([] {});
    CHECK(arrivals == 2);
  }
  SECTION("where another one takes its place") {
    uses.backward([&] {
      gradients.forget(uses.b);
      gradients.add(uses.b, vector({8, 12}));
    });
  }
  if (placed) CHECK(uses.memory.values() == std::vector<double>{8, 10, 8, 12});
  ++passes;
  uses.backward([] {});
  check(uses.a, gradients[uses.a]);
  check(uses.b, gradients[uses.b]);
}

TEST_CASE("a backward that throws leaves the gradients that had arrived, and nothing that waits") {
  Uses uses(true);
  Gradients& gradients = uses.gradients;
  CHECK_THROWS(uses.backward([] { fail({"enough"}); }));
  CHECK((gradients.has(uses.b) && !gradients.has(uses.a)));
  SECTION("for the next one") {
    uses.backward([] {});
    CHECK(gradients[uses.a].values() == std::vector<double>{8, 10});
    CHECK(gradients[uses.b].values() == std::vector<double>{16, 24});
  }
  SECTION("after they have been cleared") {
    gradients.clear();
    gradients.add(uses.a, vector({1, 2}));
    CHECK(gradients[uses.a].values() == std::vector<double>{1, 2});
  }
}

TEST_CASE("a sum that waits when a backward throws does not change what the next one computes in its place") {
  const Parameter w("w", Tensor::full({1, 1}, 1, DType::f64));
  Tensor memory = Tensor::full({1, 1}, 0, DType::f64);
  Gradients gradients;
  gradients.keep_in([&](const Parameter&) { return memory; });
  static const Op op{"look", {}, Algebra::linear};
  const auto backward = [&](bool fails) {
    Tape tape;
    const Var x = tape.constant(w.value), W = tape.watch(w);
    const Var seen = record(op, w.value, from(W, [fails](const Var& g) {
                              require(!fails, "enough");
                              return g;
                            }));
    const Var once = matmul(x, W), again = matmul(x, W);
    tape.backward(sum(seen + once + again), gradients);
  };
  CHECK_THROWS(backward(true));
  backward(false);
  CHECK(gradients[w].item() == 3);
}

TEST_CASE("a card adds many terms of one gradient one after the other") {
  SKIP_WITHOUT_A_CARD();
  for (const int uses : {2, 3, 5}) {
    Parameter p("p", vector({1, 2}).to(Device::cuda));
    Gradients gradients;
    Tape tape;
    const Var P = tape.watch(p);
    Var loss = sum(P);
    for (int use = 1; use < uses; ++use) loss = loss + sum((use + 1) * P);
    tape.backward(loss, gradients);
    const double all = uses * (uses + 1) / 2.0;
    CHECK(gradients[p].values() == std::vector<double>{all, all});
  }
}
