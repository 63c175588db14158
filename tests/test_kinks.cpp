// The rules where a derivative does not exist or several elements are the extreme, as scalar_ops.h and reduce.h state
// them.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "engine/backend.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"

using namespace weft;
using Values = std::vector<double>;

namespace {

Values gradient(const std::function<Var(const Var&)>& f, const Values& at, Device device) {
  Tape tape;
  const Var x = tape.watch(Tensor::from({static_cast<int64_t>(at.size())}, at, DType::f64, device));
  return tape.gradient(sum(f(x)), {x})[0].value().values();
}

const double infinity = INFINITY;

std::vector<Device> devices() {
  return available(Device::cuda) ? std::vector{Device::cpu, Device::cuda} : std::vector{Device::cpu};
}

}  // namespace

TEST_CASE("the derivative at a kink is the stated one") {
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

TEST_CASE("elements that tie for the extreme share its gradient equally") {
  for (const Device device : devices()) {
    CHECK(gradient([](const Var& x) { return max(x); }, {3, 1, 3, 3, 2}, device) ==
          Values{1.0 / 3, 0, 1.0 / 3, 1.0 / 3, 0});
    CHECK(gradient([](const Var& x) { return min(x); }, {1, 1, 2, 5}, device) == Values{0.5, 0.5, 0, 0});
  }
}

TEST_CASE("the gradient of a product is exact with one zero and with several") {
  for (const Device device : devices()) {
    CHECK(gradient([](const Var& x) { return prod(x); }, {2, 0, 5}, device) == Values{0, 10, 0});
    CHECK(gradient([](const Var& x) { return prod(x); }, {0, 0, 5}, device) == Values{0, 0, 0});
    CHECK(gradient([](const Var& x) { return prod(x); }, {2, 3, 5}, device) == Values{15, 10, 6});
  }
}

TEST_CASE("NaN goes through, forward and backward, and infinities follow arithmetic") {
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
