// SPDX-License-Identifier: Apache-2.0
// layer_norm against the composition of standardize, mul_along, add_along and an activation, in f64.
#include <algorithm>
#include <cmath>

#include "tests/support/on_each_device.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/tensor/pool.h"

using namespace weft;
using Catch::Contains;

namespace test_layer_norm {

constexpr Activation relu_after = {.op = Unary::Relu};
const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();

Var fused(const Var& x, const Var& gamma, const Var& beta, Activation activation) {
  return layer_norm(x, gamma, beta, 1e-3, activation);
}
Var composed(const Var& x, const Var& gamma, const Var& beta, Activation activation) {
  return activate(add_along(mul_along(standardize(x, 1e-3), gamma, -1), beta, -1), activation);
}

using Form = Var (*)(const Var&, const Var&, const Var&, Activation);

struct Inputs {
  Tensor x, gamma, beta, g;

  Inputs(int64_t rows, int64_t width, DType type, Device device)
      : x(Tensor::normal({rows, width}, {1}, 3, 2, type, device)),
        gamma(Tensor::normal({width}, {2}, 0, 1, type, device)),
        beta(Tensor::normal({width}, {3}, 0, 1, type, device)),
        g(Tensor::normal({rows, width}, {4}, 0, 1, type, device)) {}

  // The value and the gradients with respect to x, gamma and beta, computed in one type.
  std::array<Values, 4> results(Form form, Activation activation, DType type) const {
    Tape tape;
    const std::vector<Var> by = {tape.watch(x.to(type)), tape.watch(gamma.to(type)), tape.watch(beta.to(type))};
    const Var y = form(by[0], by[1], by[2], activation);
    const std::vector<Var> gradients = tape.gradient(y, Var(g.to(type)), by);
    return {values_of(y), values_of(gradients[0]), values_of(gradients[1]), values_of(gradients[2])};
  }
};

// Both NaN, equal, or within `units` roundings of the type at the largest value's size.
bool near(const Values& a, const Values& b, DType type, double units = 16) {
  const double unit = type == DType::f64 ? 0x1p-52 : type == DType::f32 ? 0x1p-23 : 0x1p-8;
  double largest = 1;
  for (const double v : b) largest = std::isfinite(v) ? std::max(largest, std::abs(v)) : largest;
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](double u, double v) {
    return u == v || (std::isnan(u) && std::isnan(v)) || std::abs(u - v) <= units * unit * largest;
  });
}

TEST_CASE_METHOD(OnEachDevice, "layer_norm and its gradients equal the composed form for every type and width") {
  for (const DType type : {DType::f32, DType::f64, DType::bf16})
    for (const int64_t width : {1, 3, 8, 17, 32, 64, 128, 256, 1025})
      for (const int64_t rows : {0, 1, 5, 16, 70})
        for (const Activation activation : {Activation{}, relu_after, Activation{Unary::Tanh, {}}}) {
          INFO(text(type) << " (" << rows << ", " << width << ") activation " << static_cast<int>(activation.op));
          const Inputs inputs(rows, width, type, device);
          const auto ours = inputs.results(fused, activation, type);
          const auto theirs = inputs.results(composed, activation, DType::f64);
          const double units = type == DType::bf16 ? activation.op == Unary::Tanh ? 4 : 1 : 32;
          for (size_t i = 0; i < ours.size(); ++i) {
            INFO("result " << i);
            CHECK(near(ours[i], theirs[i], type, units));
          }
        }
}

TEST_CASE_METHOD(OnEachDevice, "layer_norm's gradients of gamma and beta are accurate over very many rows") {
  const Inputs inputs(100'003, 3, DType::f32, device);
  const auto ours = inputs.results(fused, relu_after, DType::f32);
  const auto exact = inputs.results(composed, relu_after, DType::f64);
  for (const size_t i : {2, 3}) CHECK(near(ours[i], exact[i], DType::f32, 8));
}

TEST_CASE_METHOD(OnEachDevice, "NaN and infinities in layer_norm spread exactly as in the composed form") {
  for (const double special : {nan, infinity, -infinity})
    for (const int64_t width : {3, 20})
      for (const Activation activation : {Activation{}, relu_after})
        for (const bool in_x : {true, false}) {
          INFO(special << " in " << (in_x ? "x" : "g") << " of width " << width
                       << (activation.identity() ? "" : ", relu"));
          Inputs inputs(20, width, DType::f64, device);
          Tensor element = (in_x ? inputs.x : inputs.g).reshape({20 * width}).slice(2 * width + 1, 2 * width + 2);
          element.copy_from(full({1}, special));
          const auto ours = inputs.results(fused, activation, DType::f64);
          const auto theirs = inputs.results(composed, activation, DType::f64);
          for (size_t i = 0; i < ours.size(); ++i) CHECK(near(ours[i], theirs[i], DType::f64));
        }
}

TEST_CASE_METHOD(OnEachDevice, "layer_norm differentiates any subset of its inputs, to second order") {
  const Inputs given(6, 5, DType::f64, device);
  for (unsigned tracked = 1; tracked < 8; ++tracked)
    for (const Activation activation : {Activation{}, relu_after}) {
      const auto run = [&](Form form) {
        Tape tape;
        std::vector<Var> all, by;
        for (const Tensor* tensor : {&given.x, &given.gamma, &given.beta}) {
          const bool watched = tracked >> all.size() & 1;
          all.push_back(watched ? tape.watch(*tensor) : tape.constant(*tensor));
          if (watched) by.push_back(all.back());
        }
        const Var loss = sum(exp(form(all[0], all[1], all[2], activation)));  // its slope at zero is not zero
        Values results;
        const auto keep = [&](const Var& v) {
          for (const double value : values_of(v)) results.push_back(value);
        };
        for (const Var& gradient : tape.gradient(loss, by)) keep(gradient);
        for (const Var& gradient : tape.gradient(loss, by, Graph::create))
          for (const Var& second : tape.gradient(sum(square(gradient)), by)) keep(second);
        return results;
      };
      INFO("tracked " << tracked << (activation.identity() ? "" : ", relu"));
      CHECK(near(run(fused), run(composed), DType::f64, 64));
    }
}

TEST_CASE_METHOD(OnEachDevice, "the gradient of a relu after layer_norm is zero at its kink") {
  const Tensor x = f64({2, 2}, {1, 3, 5, 2}), gamma = f64({2}, {0, 1}), beta = f64({2}, {0, 9}), g = full({2, 2}, 1);
  Tape tape;
  const Var scale = tape.watch(gamma), shift = tape.watch(beta);
  const Var y = layer_norm(x, scale, shift, 1e-3, relu_after);
  CHECK(values_of(tape.gradient(y, Var(g), {shift})[0]) == Values{0, 2});
  CHECK(values_of(tape.gradient(y, Var(g), {scale})[0])[0] == 0);
}

TEST_CASE_METHOD(OnEachDevice, "layer_norm of a row has the same bits whatever the other rows are") {
  for (const int64_t width : {5, 33, 700}) {
    const Inputs all(37, width, DType::f32, device);
    const auto rows_of = [&](int64_t begin, int64_t end) {
      Inputs some = all;
      some.x = all.x.slice(begin, end);
      some.g = all.g.slice(begin, end);
      return some.results(fused, relu_after, DType::f32);
    };
    const auto whole = rows_of(0, 37), part = rows_of(18, 21);
    const auto from = static_cast<ptrdiff_t>(18 * width), to = static_cast<ptrdiff_t>(21 * width);
    for (const size_t i : {0, 1}) CHECK(Values(whole[i].begin() + from, whole[i].begin() + to) == part[i]);
  }
}

TEST_CASE("layer_norm saves only its input and two numbers per row for backward") {
  const Inputs given(500, 100, DType::f64, Device::cpu);
  Tape tape;
  const Var x = tape.watch(given.x);
  layer_norm(x, given.gamma, given.beta);  // allocates the arena
  const int64_t before = pool::statistics().live_bytes;
  layer_norm(x, given.gamma, given.beta);
  const int64_t kept = pool::statistics().live_bytes - before;
  CHECK(kept >= 500 * 2 * 8);
  CHECK(kept < 500 * 2 * 8 * 2 + 1000);
}

TEST_CASE_METHOD(OnEachDevice, "layer_norm refuses inputs that do not fit") {
  const Tensor x = random({4, 3}), v = random({3});
  CHECK_THROWS_WITH(layer_norm(i64({2}, {1, 2}), v, v), "layer_norm: a floating tensor is needed, not i64");
  CHECK_THROWS_WITH(layer_norm(empty({2, 0}), empty({0}), empty({0})), "layer_norm: the rows of (2, 0) are empty");
  CHECK_THROWS_WITH(layer_norm(x, random({4}), v),
                    Contains("layer_norm: gamma and beta must be f64 (3) on") && Contains("not f64 (4)"));
  CHECK_THROWS_WITH(layer_norm(x, v, random({1, 3})), Contains("not f64 (1, 3)"));
  CHECK_THROWS_WITH(layer_norm(x, v, v.to(DType::f32)), Contains("not f32 (3)"));
}

}  // namespace test_layer_norm
