// SPDX-License-Identifier: Apache-2.0
// The rules, stated in scalar_ops.h and reduce.h, where a derivative does not exist or several elements are the
// extreme.
#include <cmath>
#include <functional>

#include "tests/support/catch.h"
#include "weft/engine/kernels/backend.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;
using Values = std::vector<double>;

namespace test_kinks {

Values gradient(const std::function<Var(const Var&)>& f, const Values& at, Device device) {
  Tape tape;
  const Var x = tape.watch(Tensor::from({static_cast<int64_t>(at.size())}, at, DType::f64, device));
  return tape.gradient(sum(f(x)), {x})[0].value().values();
}

const double infinity = INFINITY;

std::vector<Device> devices() {
  return available(Device::cuda) ? std::vector{Device::cpu, Device::cuda} : std::vector{Device::cpu};
}

TEST_CASE("every op has the documented derivative at its kinks") {
  for (const Device device : devices()) {
    CHECK(gradient(weft::abs, {-2, 0, 3}, device) == Values{-1, 0, 1});
    CHECK(gradient(weft::relu, {-1, 0, 2}, device) == Values{0, 0, 1});
    CHECK(gradient([](const Var& x) { return leaky_relu(x, 0.25); }, {-1, 0, 2}, device) == Values{0.25, 0.25, 1});
    CHECK(gradient([](const Var& x) { return clamp(x, -1, 1); }, {-2, -1, 0, 1, 2}, device) == Values{0, 1, 1, 1, 0});
    CHECK(gradient(weft::round, {0.5, 1.2}, device) == Values{0, 0});
    CHECK(gradient(weft::sqrt, {0, 4}, device) == Values{infinity, 0.25});
    CHECK(gradient([](const Var& x) { return pow(x, 1); }, {0, 2}, device) == Values{1, 1});
    CHECK(gradient([](const Var& x) { return pow(x, 0); }, {0, 2}, device) == Values{0, 0});
    CHECK(gradient([](const Var& x) { return norm(x); }, {0, 0}, device) == Values{0, 0});
  }
}

// The derivatives of pow(a, b) at one point: da, db, daa, dab, dba and dbb.
struct PowerAt {
  double a, b;
  Values expected;
};

Values derivatives_of_power(double a, double b, DType dtype, Device device) {
  Tape tape;
  const Var x = tape.watch(Tensor::full({3}, a, dtype, device)), y = tape.watch(Tensor::full({3}, b, dtype, device));
  const auto once = tape.gradient(sum(pow(x, y)), {x, y}, Graph::create);
  const auto by_x = tape.gradient(sum(once[0]), {x, y}), by_y = tape.gradient(sum(once[1]), {x, y});
  Values result;
  for (const Var& v : {once[0], once[1], by_x[0], by_x[1], by_y[0], by_y[1]}) result.push_back(v.value().values()[2]);
  return result;
}

TEST_CASE("derivatives of a power at base zero are limits from above, or zero where there is no limit") {
  const double i = infinity;
  // a^b, b a^(b-1), a^b log a, b (b-1) a^(b-2), a^(b-1) (1 + b log a) twice, a^b log^2 a.
  const std::vector<PowerAt> places = {
      {0, 0, {0, 0, 0, 0, 0, 0}},    {0, 0.5, {i, 0, -i, -i, -i, 0}}, {0, 1, {1, 0, 0, -i, -i, 0}},
      {0, 1.5, {0, 0, i, 0, 0, 0}},  {0, 2, {0, 0, 2, 0, 0, 0}},      {0, 3, {0, 0, 0, 0, 0, 0}},
      {0, -1, {-i, -i, i, i, i, i}}, {-0.0, 2, {0, 0, 2, 0, 0, 0}},   {-0.0, 0, {0, 0, 0, 0, 0, 0}},
      {i, -1, {0, 0, 0, 0, 0, 0}},   {i, 0, {0, i, 0, 0, 0, i}},      {1, 0, {0, 0, 0, 1, 1, 0}},
      {1, 3, {3, 0, 6, 1, 1, 0}},
  };
  for (const Device device : devices())
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16})
      for (const auto& [a, b, expected] : places) {
        INFO(a << "^" << b << " in " << text(dtype) << " on " << text(device));
        CHECK(derivatives_of_power(a, b, dtype, device) == expected);
      }
}

TEST_CASE("derivatives of a power away from zero follow the formulas, including negative bases and results of zero") {
  for (const Device device : devices()) {
    for (const double a : {0.3, 1.7, 4.0})
      for (const double b : {-2.5, -1.0, 0.0, 0.5, 1.0, 2.0, 3.25}) {
        const double p = std::pow(a, b), l = std::log(a), both = std::pow(a, b - 1) * (1 + b * l);
        const Values expected = {b * p / a, p * l, b * (b - 1) * p / (a * a), both, both, p * l * l};
        const Values found = derivatives_of_power(a, b, DType::f64, device);
        for (size_t n = 0; n < expected.size(); ++n)
          CHECK(found[n] == Approx(expected[n]).epsilon(1e-13).margin(1e-14));
      }
    const Values below = derivatives_of_power(-2, 3, DType::f64, device);
    CHECK(below[0] == 12);
    CHECK(below[2] == -12);
    for (const size_t by_exponent : {1, 3, 4, 5}) CHECK(std::isnan(below[by_exponent]));
    const Values none = derivatives_of_power(NAN, 2.5, DType::f64, device);
    for (const double v : none) CHECK(std::isnan(v));
    CHECK(std::isnan(derivatives_of_power(-1e-300, 3, DType::f64, device)[1]));
    CHECK(std::isnan(derivatives_of_power(0, NAN, DType::f64, device)[1]));
  }
}

TEST_CASE("third derivatives of a power match finite differences of the second") {
  constexpr double a = 1.3, b = 2.6, h = 1e-5;
  const auto third = [&](bool by_base) {
    const double to = by_base ? h : 0, too = by_base ? 0 : h;
    const Values up = derivatives_of_power(a + to, b + too, DType::f64, Device::cpu),
                 down = derivatives_of_power(a - to, b - too, DType::f64, Device::cpu);
    return Values{(up[2] - down[2]) / (2 * h), (up[3] - down[3]) / (2 * h), (up[5] - down[5]) / (2 * h)};
  };
  Tape tape;
  const Var x = tape.watch(Tensor::full({1}, a, DType::f64)), y = tape.watch(Tensor::full({1}, b, DType::f64));
  const auto once = tape.gradient(sum(pow(x, y)), {x, y}, Graph::create);
  const auto by_x = tape.gradient(sum(once[0]), {x, y}, Graph::create),
             by_y = tape.gradient(sum(once[1]), {x, y}, Graph::create);
  const Var second[] = {by_x[0], by_x[1], by_y[1]};
  for (size_t n = 0; n < 3; ++n) {
    const auto found = tape.gradient(sum(second[n]), {x, y});
    CHECK(found[0].value().item() == Approx(third(true)[n]).epsilon(1e-8));
    CHECK(found[1].value().item() == Approx(third(false)[n]).epsilon(1e-8));
  }
}

TEST_CASE("equal arguments of maximum and minimum get half of the gradient each") {
  for (const Device device : devices()) {
    Tape tape;
    const Var a = tape.watch(Tensor::from({3}, {1, 2, 3}, DType::f64, device)),
              b = tape.watch(Tensor::from({3}, {1, 3, 2}, DType::f64, device));
    const auto upper = tape.gradient(sum(maximum(a, b)), {a, b}), lower = tape.gradient(sum(minimum(a, b)), {a, b});
    CHECK(upper[0].value().values() == Values{0.5, 0, 1});
    CHECK(upper[1].value().values() == Values{0.5, 1, 0});
    CHECK(lower[0].value().values() == Values{0.5, 1, 0});
    CHECK(lower[1].value().values() == Values{0.5, 0, 1});
  }
}

TEST_CASE("elements that tie for the maximum or minimum share its gradient equally") {
  for (const Device device : devices()) {
    CHECK(gradient([](const Var& x) { return max(x); }, {3, 1, 3, 3, 2}, device) ==
          Values{1.0 / 3, 0, 1.0 / 3, 1.0 / 3, 0});
    CHECK(gradient([](const Var& x) { return min(x); }, {1, 1, 2, 5}, device) == Values{0.5, 0.5, 0, 0});
    Tape tape;
    const Var x = tape.watch(Tensor::from({3}, {4, 1, 4}, DType::f64, device));
    CHECK(tape.gradient(max(x), {x}, Graph::create)[0].value().values() == Values{0.5, 0, 0.5});
  }
}

TEST_CASE("the gradient of prod is exact with one zero and with several") {
  for (const Device device : devices()) {
    CHECK(gradient([](const Var& x) { return prod(x); }, {2, 0, 5}, device) == Values{0, 10, 0});
    CHECK(gradient([](const Var& x) { return prod(x); }, {0, 0, 5}, device) == Values{0, 0, 0});
    CHECK(gradient([](const Var& x) { return prod(x); }, {2, 3, 5}, device) == Values{15, 10, 6});
  }
}

TEST_CASE("NaN propagates forward and backward, and infinities follow IEEE arithmetic") {
  const double nan = NAN;
  for (const Device device : devices()) {
    const Var x(Tensor::from({4}, {nan, -infinity, infinity, 1}, DType::f64, device));
    for (const auto& f : {weft::abs, weft::relu, weft::exp, weft::tanh, weft::sigmoid, weft::silu, weft::softplus,
                          weft::gelu, weft::square, weft::sin, weft::neg})
      CHECK(std::isnan(f(x).value().values()[0]));
    CHECK(std::isnan(clamp(x, -1, 1).value().values()[0]));
    CHECK(std::isnan(maximum(x, Tensor::full({4}, 1, DType::f64, device)).value().values()[0]));
    CHECK(std::isnan(minimum(Tensor::full({4}, 1, DType::f64, device), x).value().values()[0]));
    CHECK(std::isnan(max(x).value().item()));
    CHECK(std::isnan(sum(x).value().item()));
    CHECK(sigmoid(x).value().values()[1] == 0);
    CHECK(tanh(x).value().values()[2] == 1);
    CHECK(softplus(x).value().values()[1] == 0);
    CHECK(exp(x).value().values()[2] == infinity);
    CHECK(std::isnan(gradient(weft::relu, {nan}, device)[0]));
    CHECK(std::isnan(gradient(weft::abs, {nan}, device)[0]));
  }
}

}  // namespace test_kinks
