// SPDX-License-Identifier: Apache-2.0
#include "tests/support/catch.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/optim/optimizer.h"

namespace weft {
namespace {

Gradients gradients_of(const Parameter& p, const std::vector<double>& values) {
  Gradients gradients;
  gradients.add(p, Tensor::from({static_cast<int64_t>(values.size())}, values, DType::f64));
  return gradients;
}

TEST_CASE("sgd without momentum steps against the gradient") {
  Parameter p("p", Tensor::from({2}, {1, 2}, DType::f64));
  Optimizer sgd({&p}, Sgd{});
  sgd.step(gradients_of(p, {4, -8}), 0.25);
  CHECK(p.value.values() == std::vector<double>{0, 4});
  sgd.step(gradients_of(p, {4, -8}), 0.25);
  CHECK(p.value.values() == std::vector<double>{-1, 6});
}

TEST_CASE("sgd with momentum continues with the decayed velocity") {
  Parameter p("p", Tensor::from({1}, {0}, DType::f64));
  Optimizer sgd({&p}, Sgd{.momentum = 0.5});
  sgd.step(gradients_of(p, {1}), 1);  // v = 1
  sgd.step(gradients_of(p, {1}), 1);  // v = 1.5
  CHECK(p.value.item() == -2.5);
  sgd.step(gradients_of(p, {0}), 2);  // v = 0.75
  CHECK(p.value.item() == -4);
}

TEST_CASE("sgd leaves a parameter without a gradient alone") {
  Parameter used("used", Tensor::from({1}, {1}, DType::f64)), unused("unused", Tensor::from({1}, {1}, DType::f64));
  Optimizer sgd({&used, &unused}, Sgd{.momentum = 0.9});
  sgd.step(gradients_of(used, {1}), 0.5);
  CHECK(used.value.item() == 0.5);
  CHECK(unused.value.item() == 1);
}

TEST_CASE("sgd does not change the gradients") {
  Parameter p("p", Tensor::from({1}, {1}, DType::f64));
  Optimizer sgd({&p}, Sgd{.momentum = 0.9});
  const Gradients gradients = gradients_of(p, {3});
  sgd.step(gradients, 0.5);
  sgd.step(gradients, 0.5);
  CHECK(gradients[p].item() == 3);
}

TEST_CASE("sgd finds the minimum of a quadratic") {
  Parameter p("p", Tensor::from({2}, {5, -3}, DType::f64));
  const Tensor goal = Tensor::from({2}, {1, 2}, DType::f64);
  Optimizer sgd({&p}, Sgd{.momentum = 0.5});
  for (int step = 0; step < 200; ++step) {
    Tape tape;
    Gradients gradients;
    tape.backward(sum(square(tape.watch(p) - goal)), gradients);
    sgd.step(gradients, 0.1);
  }
  CHECK(p.value.values()[0] == Approx(1));
  CHECK(p.value.values()[1] == Approx(2));
}

TEST_CASE("sgd refuses an impossible momentum") {
  CHECK_THROWS_WITH(Optimizer({}, Sgd{.momentum = 1}), "sgd: momentum 1 is outside [0, 1)");
  CHECK_THROWS_AS(Optimizer({}, Sgd{.momentum = -0.1}), Error);
}

}  // namespace
}  // namespace weft
