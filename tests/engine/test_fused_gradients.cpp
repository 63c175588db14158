// SPDX-License-Identifier: Apache-2.0
// FusedGradients: one computation of several gradients, which are handed out one by one.
#include "weft/engine/tape/fused_gradients.h"

#include "tests/support/on_each_device.h"
#include "weft/engine/tape/record.h"

using namespace weft;

namespace {

// a b, elementwise.
struct Product {
  Var a, b;
  int* computed;

  std::array<Tensor, 2> fused(const Tensor& g) const {
    ++*computed;
    const auto times = [&](const Var& of, const Var& other) {
      return of.tracked() ? (Var(g) * Var(other.value())).value() : Tensor();
    };
    return {times(a, b), times(b, a)};
  }
  Var composed(size_t input, const Var& g) const { return g * (input == 0 ? b : a); }
};

const Op product_op{"fused product",
                    {{"",
                      {{3}, {3}},
                      [](auto x) {
                        static int computed = 0;
                        const FusedGradients fused(Product{x[0], x[1], &computed});
                        return record(product_op, (detach(x[0]) * detach(x[1])).value(), from(x[0], fused.part(0)),
                                      from(x[1], fused.part(1)));
                      }}},
                    Algebra::multilinear};

struct Recorded {
  int computed = 0;
  Tape tape;
  Var a = tape.watch(Tensor::from({2}, {1, 2}, DType::f64)), b = tape.watch(Tensor::from({2}, {3, 5}, DType::f64));
  Var y = product(a, b);

  Var product(const Var& a, const Var& b) {
    const FusedGradients fused(Product{a, b, &computed});
    return record(product_op, (Var(a.value()) * Var(b.value())).value(), from(a, fused.part(0)),
                  from(b, fused.part(1)));
  }
  Values gradient(const Tensor& seed, const std::vector<Var>& by) {
    Values all;
    for (const Var& g : tape.gradient(y, Var(seed), by))
      for (const double x : values_of(g)) all.push_back(x);
    return all;
  }
};

Tensor seed(double first, double second) { return Tensor::from({2}, {first, second}, DType::f64); }

}  // namespace

TEST_CASE("a fused computation of several gradients runs once per walk") {
  Recorded r;
  CHECK(r.gradient(seed(1, 1), {r.a, r.b}) == Values{3, 5, 1, 2});
  CHECK(r.computed == 1);
}

TEST_CASE("walks that ask for some of the fused gradients with other cotangents never share results") {
  Recorded r;
  Tensor s = seed(1, 1);
  CHECK(r.gradient(s, {r.a}) == Values{3, 5});
  CHECK(r.gradient(seed(2, 3), {r.b}) == Values{2, 6});
  CHECK(r.gradient(s, {r.a}) == Values{3, 5});
  s.copy_from(seed(10, 100));  // same memory, other cotangent
  CHECK(r.gradient(s, {r.b}) == Values{10, 200});
  CHECK(r.gradient(s, {r.b, r.a}) == Values{10, 200, 30, 500});
  CHECK(r.gradient(s, {r.a}) == Values{30, 500});
  const Tensor both = Tensor::from({4}, {1, 1, 7, 8}, DType::f64);
  CHECK(r.gradient(both.slice(0, 2), {r.a}) == Values{3, 5});
  CHECK(r.gradient(both.slice(2, 4), {r.b}) == Values{7, 16});
}

TEST_CASE("a recorded walk computes each gradient from ops, whatever an earlier walk has left") {
  Recorded r;
  const Var s = r.tape.watch(seed(1, 1));
  CHECK(r.gradient(s.value(), {r.a}) == Values{3, 5});
  const Var g = r.tape.gradient(r.y, s, {r.b}, Graph::create)[0];
  CHECK(values_of(g) == Values{1, 2});
  CHECK(values_of(r.tape.gradient(g, Var(seed(1, 1)), {s})[0]) == Values{1, 2});
  CHECK(r.computed == 1);
}

TEST_CASE("results of a fused computation are released as they are handed out, or with the tape") {
  const Parameter a("a", Tensor::zeros({1000}, DType::f64)), b("b", Tensor::zeros({1000}, DType::f64));
  int computed = 0;
  const auto walk = [&](Keep keep) {
    Gradients into;
    Tape tape;
    const FusedGradients fused(Product{tape.watch(a), tape.watch(b), &computed});
    const Var y = record(product_op, Tensor::zeros({1000}, DType::f64), from(tape.watch(a), fused.part(0)),
                         from(tape.watch(b), fused.part(1)));
    const Tensor ones = Tensor::full({1000}, 1, DType::f64);
    const int64_t before = pool::statistics().live_bytes;
    tape.backward(y, ones, into, keep);
    into.clear();
    return pool::statistics().live_bytes - before;
  };
  CHECK(walk(Keep::tape) < 8000);
  CHECK(walk(Keep::nothing) < 8000);
  CHECK(computed == 2);
}

TEST_CASE("a query releases the fused results that it does not ask for") {
  int computed = 0;
  const Tensor ones = Tensor::full({1000}, 1, DType::f64);
  Tape tape;
  const Var a = tape.watch(ones), b = tape.watch(ones);
  const FusedGradients fused(Product{a, b, &computed});
  const Var y = record(product_op, Tensor::zeros({1000}, DType::f64), from(a, fused.part(0)), from(b, fused.part(1)));
  const int64_t before = pool::statistics().live_bytes;
  tape.gradient(y, Var(ones), {b});
  CHECK(pool::statistics().live_bytes - before < 8000);
  CHECK(computed == 1);
}

TEST_CASE("FusedGradients skips an input without a gradient and adds both terms of one used twice") {
  Recorded r;
  const Var constant = seed(7, 8);
  const Var y = r.product(constant, r.b);
  CHECK(values_of(r.tape.gradient(y, Var(seed(1, 1)), {r.b})[0]) == Values{7, 8});
  const Var square = r.product(r.a, r.a);
  CHECK(values_of(r.tape.gradient(square, Var(seed(1, 1)), {r.a})[0]) == Values{2, 4});
}
