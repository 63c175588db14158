// SPDX-License-Identifier: Apache-2.0
// Schedules, clipping, averages, and no memory from the system after the first steps.
#include <limits>

#include "tests/support/catch.h"
#include "weft/engine/kernels/backend.h"
#include "weft/optim/average.h"
#include "weft/optim/optimizer.h"
#include "weft/optim/schedules.h"

namespace weft {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST_CASE("schedules start, end and change at the stated steps") {
  CHECK(constant(0.5)(1000) == 0.5);
  const Schedule line = linear(1, 0, 4);
  CHECK(std::vector{line(0), line(1), line(4), line(9)} == std::vector<double>{1, 0.75, 0, 0});
  const Schedule wave = cosine(1, 0.5, 4);
  CHECK(wave(0) == 1);
  CHECK(wave(1) == Approx(0.5 + 0.25 * (1 + std::sqrt(0.5))));
  CHECK(wave(2) == Approx(0.75));
  CHECK(wave(4) == 0.5);
  CHECK(wave(400) == 0.5);
  const Schedule falling = stairs(8, 0.5, 3);
  CHECK(std::vector{falling(0), falling(2), falling(3), falling(6)} == std::vector<double>{8, 8, 4, 2});
  const Schedule rising = warm_up(4, cosine(1, 0, 10));
  CHECK(std::vector{rising(0), rising(1), rising(3), rising(4)} == std::vector{0.2, 0.4, 0.8, 1.0});
  CHECK(rising(9) == Approx(0.5));
  const Schedule two = sequence(constant(1), 3, linear(4, 0, 2));
  CHECK(std::vector{two(2), two(3), two(4), two(5)} == std::vector<double>{1, 4, 2, 0});
  const Schedule cycle = one_cycle(2, 3, 13);
  CHECK(std::vector{cycle(0), cycle(1), cycle(3), cycle(13)} == std::vector{0.5, 1.0, 2.0, 0.0});
  CHECK(cycle(8) == Approx(1));
  CHECK(std::vector{one_cycle(2, 3, 4)(1), one_cycle(2, 3, 4)(2)} == std::vector{4 / 3., 2.0});
  CHECK(one_cycle(2, 3, 1)(0) == 2);
  CHECK_THROWS_WITH(cosine(1, 0, 0), "cosine: 0 steps; at least one is needed");
}

TEST_CASE("clipping scales gradients above the limit and leaves others unchanged") {
  CHECK(clip(2, 1) == 0.5);
  CHECK(clip(1, 1) == 1);
  CHECK(clip(0, 1) == 1);
  Parameter a("a", Tensor::zeros({1}, DType::f64)), b("b", Tensor::zeros({1}, DType::f64));
  Optimizer sgd({&a, &b}, Sgd{});
  Gradients gradients;
  gradients.add(a, Tensor::full({1}, 30, DType::f64));
  gradients.add(b, Tensor::full({1}, 40, DType::f64));
  CHECK(sgd.norm(gradients) == 50);
  sgd.step(gradients, 1, clip(sgd.norm(gradients), 5));
  CHECK(a.value.item() == Approx(-3).epsilon(1e-15));
  CHECK(b.value.item() == Approx(-4).epsilon(1e-15));
}

TEST_CASE("a non-finite norm is an error, and no step is made") {
  for (const double wrong : {infinity, -infinity, std::nan("")}) {
    Parameter p("p", Tensor::zeros({2}));
    Optimizer adamw({&p}, AdamW{});
    Gradients gradients;
    gradients.add(p, Tensor::from({2}, {1, wrong}));
    const auto clipped_step = [&] { adamw.step(gradients, 1, clip(adamw.norm(gradients), 1)); };
    CHECK_THROWS_WITH(clipped_step(), Catch::Contains("the norm of the gradients is"));
    CHECK(p.value.values() == std::vector<double>{0, 0});
    CHECK(adamw.steps(p) == 0);
  }
}

TEST_CASE("a norm beyond the f32 range is still correct, and NaN shows in an update without clipping") {
  Parameter p("p", Tensor::zeros({2}));
  Optimizer lars({&p}, Lars{});
  Gradients gradients;
  gradients.add(p, Tensor::from({2}, {3e30, 4e30}));
  CHECK(lars.norm(gradients) == Approx(5e30));
  Gradients wrong;
  wrong.add(p, Tensor::from({2}, {std::nan(""), 1}));
  lars.step(wrong, 1);
  CHECK(std::isnan(p.value.values()[0]));
}

TEST_CASE("a parameter average follows the parameters, replaces them and restores them") {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    Parameter p("p", Tensor::full({3}, 1, dtype));
    FlatParameters flat({&p});
    WeightAverage average(flat);
    p.value.copy_from(Tensor::full({3}, 5, dtype));
    average.update(0.75);
    average.update(0.75);
    CHECK(average.flat().slice(0, 4).values() == std::vector<double>{2.75, 2.75, 2.75, 0});
    const uint32_t version = p.value.version();
    {
      WeightAverage::Applied applied(average);
      CHECK(p.value.values() == std::vector<double>(3, 2.75));
      CHECK(p.value.version() != version);
    }
    CHECK(p.value.values() == std::vector<double>(3, 5));
  }
}

TEST_CASE("a parameter average of a range leaves the rest unchanged") {
  Parameter p("p", Tensor::full({2048}, 1));
  FlatParameters flat({&p});
  WeightAverage average(flat, {1024, 2048});
  p.value.copy_from(Tensor::full({2048}, 3));
  WeightAverage::Applied applied(average);
  CHECK(p.value.values()[1023] == 3);
  CHECK(p.value.values()[1024] == 1);
}

TEST_CASE("steps, norms and averages allocate no system memory after the first") {
  for (const Rule& rule : {Rule(Sgd{.momentum = 0.9}), Rule(AdamW{}), Rule(Lars{}), Rule(Lamb{})}) {
    INFO(name(rule));
    Parameter a("a", Tensor::full({300, 7}, 1)), b("b", Tensor::full({5}, 1));
    Optimizer optimizer({&a, &b}, rule);
    WeightAverage average(optimizer.parameters());
    const Schedule rate = warm_up(2, cosine(1, 0, 10));
    Gradients gradients;
    gradients.add(a, Tensor::full({300, 7}, 1));
    gradients.add(b, Tensor::full({5}, 1));
    const Tensor flat = Tensor::full(optimizer.parameters().flat().shape(), 1);
    const std::vector<bool> marks = {true, true};
    int64_t of_pool = 0;
    for (int step = 0; step < 6; ++step) {
      if (step == 3) of_pool = pool::statistics().system_calls;
      optimizer.step(gradients, rate(step), clip(optimizer.norm(gradients), 1));
      optimizer.step(flat, marks, rate(step), clip(optimizer.norm(flat, marks), 1));
      average.update(0.9);
      const WeightAverage::Applied applied(average);
    }
    CHECK(pool::statistics().system_calls == of_pool);
  }
}

}  // namespace
}  // namespace weft
