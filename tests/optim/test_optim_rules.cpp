// SPDX-License-Identifier: Apache-2.0
// Each optimizer against PyTorch's values and plain loops.
#include <algorithm>
#include <cmath>
#include <deque>

#include "tests/optim/optim_reference.h"
#include "tests/support/catch.h"
#include "weft/engine/ops/matmul.h"
#include "weft/optim/optimizer.h"

namespace weft {
namespace {

using Values = std::vector<double>;
constexpr int steps = 20;

Values eighths(int64_t size, int64_t seed) {
  Values values;
  for (int64_t i = 0; i < size; ++i) values.push_back(static_cast<double>((7 * i + 13 * seed) % 17 - 8) / 8);
  return values;
}
double rate_at(int step) { return 0.125 - step / 256.0; }

// The program of optim_reference.py: the second group has half the rate, and in some steps no gradient.
struct Program {
  Parameter a, b;
  Optimizer optimizer;

  Program(const Rule& first, const Rule& second, DType dtype)
      : a("a", Tensor::from({5}, eighths(5, 45), dtype)),
        b("b", Tensor::from({2, 3}, eighths(6, 46), dtype)),
        optimizer({{{&a}, first}, {{&b}, second, 0.5}}) {}
  void step(int number, double scale = 1) {
    Gradients gradients;
    const auto add = [&](const Parameter& p, int64_t seed) {
      Values values = eighths(p.value.size(), seed);
      for (double& value : values) value /= scale;
      gradients.add(p, Tensor::from(p.value.shape(), values, p.value.dtype()));
    };
    add(a, 2 * number);
    if (number % 3 != 1) add(b, 2 * number + 1);
    optimizer.step(gradients, rate_at(number), scale);
  }
  Values run(double scale = 1) {
    for (int number = 0; number < steps; ++number) step(number, scale);
    Values all = a.value.values();
    for (const double value : b.value.values()) all.push_back(value);
    return all;
  }
};

double distance(const Values& a, const Values& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

struct Case {
  const char* name;
  Rule first, second;
  const Values& expected;
};
const std::vector<Case> cases = {
    {"sgd", Sgd{}, Sgd{}, reference::sgd},
    {"sgd with momentum", Sgd{.momentum = 0.875, .weight_decay = 0.125}, Sgd{.momentum = 0.875},
     reference::sgd_momentum},
    {"sgd with nesterov's momentum", Sgd{.momentum = 0.75, .weight_decay = 0.0625, .nesterov = true},
     Sgd{.momentum = 0.75, .nesterov = true}, reference::sgd_nesterov},
    {"adam", Adam{.beta1 = 0.875, .beta2 = 0.96875, .weight_decay = 0.125}, Adam{.beta1 = 0.875, .beta2 = 0.96875},
     reference::adam},
    {"adamw", AdamW{.beta1 = 0.875, .beta2 = 0.96875, .weight_decay = 0.25},
     AdamW{.beta1 = 0.875, .beta2 = 0.96875, .weight_decay = 0}, reference::adamw},
    {"adam with amsgrad", Adam{.beta1 = 0.5, .beta2 = 0.75, .weight_decay = 0.125, .amsgrad = true},
     Adam{.beta1 = 0.5, .beta2 = 0.75, .amsgrad = true}, reference::adam_amsgrad},
    {"adamw with amsgrad", AdamW{.beta1 = 0.5, .beta2 = 0.75, .weight_decay = 0.25, .amsgrad = true},
     AdamW{.beta1 = 0.5, .beta2 = 0.75, .weight_decay = 0, .amsgrad = true}, reference::adamw_amsgrad},
};

TEST_CASE("sgd, adam and adamw match PyTorch after 20 steps of two groups with some gradients missing") {
  for (const auto& [name, first, second, expected] : cases) {
    INFO(name);
    CHECK(distance(Program(first, second, DType::f64).run(), expected) < 1e-13);
    CHECK(distance(Program(first, second, DType::f32).run(), expected) < 2e-6);
  }
}

TEST_CASE("a gradient scale equals scaled gradients") {
  for (const auto& [name, first, second, expected] : cases) {
    INFO(name);
    CHECK(Program(first, second, DType::f64).run(0.25) == Program(first, second, DType::f64).run());
  }
}

// The other program of optim_reference.py: all but the first parameter have no gradient in some steps.
Values trained(const std::vector<Shape>& shapes, const Rule& rule, DType dtype, double scale = 1) {
  std::deque<Parameter> parameters;
  std::vector<Parameter*> all;
  for (const Shape& shape : shapes) {
    const auto i = static_cast<int64_t>(all.size());
    all.push_back(&parameters.emplace_back("p" + text(i), Tensor::from(shape, eighths(shape.size(), 40 + i), dtype)));
  }
  Optimizer optimizer(all, rule);
  for (int number = 0; number < steps; ++number) {
    Gradients gradients;
    for (size_t i = 0; i < all.size(); ++i) {
      Values values = eighths(all[i]->value.size(), 3 * number + static_cast<int64_t>(i));
      for (double& value : values) value /= scale;
      if (i == 0 || number % 3 != 1) gradients.add(*all[i], Tensor::from(shapes[i], values, dtype));
    }
    optimizer.step(gradients, rate_at(number), scale);
  }
  Values result;
  for (const Parameter& p : parameters)
    for (const double value : p.value.values()) result.push_back(value);
  return result;
}

TEST_CASE("muon matches PyTorch after 20 steps of two matrices, with iterations in the values' type or bf16") {
  const std::vector<Shape> shapes = {{4, 6}, {5, 3}};
  Muon muon = {.momentum = 0.875, .weight_decay = 0.125};
  const Muon plain = {
      .momentum = 0.75, .weight_decay = 0, .nesterov = false, .adjust = Muon::Adjust::match_rms_adamw, .iterations = 3};
  const Muon spectral = {.adjust = Muon::Adjust::spectral_unclamped, .coefficients = {3, -3.2, 1.2}};
  CHECK(distance(trained(shapes, muon, DType::f64), reference::muon) < 1e-12);
  CHECK(distance(trained(shapes, plain, DType::f64), reference::muon_plain) < 1e-12);
  CHECK(distance(trained(shapes, spectral, DType::f64), reference::muon_spectral) < 1e-12);
  CHECK(distance(trained(shapes, muon, DType::f32), reference::muon) < 1e-4);
  CHECK(distance(trained(shapes, muon, DType::f64, 0.25), trained(shapes, muon, DType::f64)) == 0);
  // PyTorch's own distance from exact steps is of the size of bf16 rounding.
  muon.in_bf16 = true;
  CHECK(distance(reference::muon_bf16, reference::muon) > 1e-3);
  CHECK(distance(trained(shapes, muon, DType::f64), reference::muon_bf16) < 0.03);
}

TEST_CASE("muon's direction has singular values near one, for a matrix and a batch of filters") {
  for (const Shape& shape : {Shape{40, 12}, Shape{12, 40}, Shape{3, 3, 2, 9}}) {
    const Tensor x = Tensor::normal({shape.size() / shape[-1], shape[-1]}, {4}, 0, 1, DType::f64);
    Parameter p("p", Tensor::zeros(shape, DType::f64));
    Optimizer optimizer({&p}, Muon{.momentum = 0, .iterations = 40, .coefficients = {1.5, -0.5, 0}});
    Gradients gradients;
    gradients.add(p, x.reshape(shape));
    optimizer.step(gradients, -1);
    const bool wide = x.shape()[0] < x.shape()[1];
    const Tensor y = p.value.reshape(x.shape());
    const Tensor square = wide ? matmul(y, y, Transpose::no, Transpose::yes).value()
                               : matmul(y, y, Transpose::yes, Transpose::no).value();
    const double scale = std::max(1.0, static_cast<double>(x.shape()[1]) / static_cast<double>(x.shape()[0]));
    for (int64_t i = 0; i < square.shape()[0]; ++i)
      for (int64_t j = 0; j < square.shape()[1]; ++j)
        CHECK(square.data<double>()[i * square.shape()[1] + j] == Approx(i == j ? scale : 0).margin(1e-12));
  }
}

TEST_CASE("adafactor matches PyTorch after 20 steps of a matrix, a batch of matrices, a vector and a scalar") {
  const std::vector<Shape> shapes = {{4, 6}, {2, 3, 5}, {7}, {}};
  const Adafactor plain = {.weight_decay = 0.125};
  const Adafactor free = {.beta2_decay = -0.5, .epsilon1 = 1e-3, .epsilon2 = 0.25, .d = 2};
  CHECK(distance(trained(shapes, plain, DType::f64), reference::adafactor) < 1e-13);
  CHECK(distance(trained(shapes, free, DType::f64), reference::adafactor_free) < 1e-13);
  CHECK(distance(trained(shapes, free, DType::f32), reference::adafactor_free) < 2e-6);
  CHECK(trained(shapes, plain, DType::f64, 0.25) == trained(shapes, plain, DType::f64));
}

TEST_CASE("adafactor stores rows and columns of a matrix instead of its elements") {
  Parameter a("a", Tensor::full({30, 50}, 1)), b("b", Tensor::full({7}, 1));
  Optimizer optimizer({&a, &b}, Adafactor{});
  std::vector<std::string> kept;
  for (const Optimizer::State& state : optimizer.state())
    kept.push_back(state.parameter->name + "." + state.name + " " + text(state.values.size()));
  std::sort(kept.begin(), kept.end());
  CHECK(kept == std::vector<std::string>{"a.adafactor.columns 50", "a.adafactor.rows 30", "b.adafactor.v 7"});
}

TEST_CASE("groups with different rules in one optimizer step like separate optimizers") {
  const std::vector<Rule> rules = {Muon{}, AdamW{}, Sgd{}, Sgd{.momentum = 0.5}, Lamb{}, Adafactor{}, Lars{}};
  const auto values_of = [&](bool together, DType dtype) {
    std::deque<Parameter> parameters;
    std::vector<ParameterGroup> groups;
    for (size_t i = 0; i < 2 * rules.size(); ++i) {
      const Shape shape = {4 + static_cast<int64_t>(i), 6};
      parameters.emplace_back("p" + text(i), Tensor::normal(shape, {7, i}, 0, 1, dtype));
      groups.push_back({{&parameters.back()}, rules[i % rules.size()], 1.0 + static_cast<double>(i % 3)});
    }
    std::deque<Optimizer> optimizers;
    if (together)
      optimizers.emplace_back(groups);
    else
      for (const ParameterGroup& group : groups) optimizers.emplace_back(std::vector<ParameterGroup>{group});
    for (uint64_t number = 0; number < 5; ++number) {
      Gradients gradients;
      for (size_t i = 0; i < parameters.size(); ++i)
        if ((i + number) % 4 != 0)
          gradients.add(parameters[i], Tensor::normal(parameters[i].value.shape(), {number, i}, 0, 1, dtype));
      for (Optimizer& optimizer : optimizers) optimizer.step(gradients, 0.01, 0.5);
    }
    std::vector<Values> result;
    for (const Parameter& p : parameters) result.push_back(p.value.values());
    return result;
  };
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    INFO(text(dtype));
    CHECK(values_of(true, dtype) == values_of(false, dtype));
  }
}

TEST_CASE("a parameter without any gradient is named once, before the tenth step, which can then proceed") {
  Parameter a("a", Tensor::full({2}, 1)), b("lost", Tensor::full({2}, 1)), c("resting", Tensor::full({2}, 1)),
      d("late", Tensor::full({2}, 1));
  Optimizer optimizer({{{&a, &b, &d}, Sgd{}}, {.parameters = {&c}, .rule = Sgd{}, .unused_steps = 0}});
  const auto step = [&](bool late) {
    Gradients gradients;
    gradients.add(a, Tensor::full({2}, 1));
    if (late) gradients.add(d, Tensor::full({2}, 1));
    optimizer.step(gradients, 0.125);
  };
  for (int i = 1; i < 10; ++i) step(i == 9);
  const Values before = a.value.values();
  CHECK_THROWS_WITH(step(false), Catch::Contains("no gradient has reached lost yet, on any rank") &&
                                     Catch::Contains("unused_steps = 0"));
  CHECK(a.value.values() == before);
  CHECK(optimizer.steps(a) == 9);
  for (int i = 0; i < 20; ++i) step(false);
  CHECK(optimizer.steps(a) == 29);
}

double norm(const Values& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum);
}
double ratio(double a, double b) { return a > 0 && b > 0 ? a / b : 1; }

TEST_CASE("lars follows its formula") {
  const Lars rule = {.momentum = 0.875, .weight_decay = 0.125, .trust = 0.0625, .epsilon = 1e-9};
  const Lars plain = {.momentum = 0.5, .weight_decay = 0.25, .adapt = false};
  Values p = eighths(5, 45), velocity(5), q = eighths(6, 46), velocity_of_q(6);
  for (int number = 0; number < steps; ++number) {
    const Values g = eighths(5, 2 * number), h = eighths(6, 2 * number + 1);
    const double a = rule.trust * ratio(norm(p), norm(g) + rule.weight_decay * norm(p) + rule.epsilon);
    for (size_t i = 0; i < p.size(); ++i) {
      velocity[i] = rule.momentum * velocity[i] + a * (g[i] + rule.weight_decay * p[i]);
      p[i] -= rate_at(number) * velocity[i];
    }
    for (size_t i = 0; i < q.size() && number % 3 != 1; ++i) {
      velocity_of_q[i] = plain.momentum * velocity_of_q[i] + h[i] + plain.weight_decay * q[i];
      q[i] -= rate_at(number) / 2 * velocity_of_q[i];
    }
  }
  p.insert(p.end(), q.begin(), q.end());
  CHECK(distance(Program(rule, plain, DType::f64).run(), p) < 1e-13);
  CHECK(distance(Program(rule, plain, DType::f64).run(0.25), p) < 1e-13);
  CHECK(distance(Program(rule, plain, DType::f32).run(), p) < 2e-6);
}

Values lamb(const Lamb& rule, Values p, int first_seed, bool gaps, double rate_scale) {
  Values m(p.size()), v(p.size()), r(p.size());
  double t = 0;
  for (int number = 0; number < steps; ++number) {
    if (gaps && number % 3 == 1) continue;
    ++t;
    const Values g = eighths(static_cast<int64_t>(p.size()), 2 * number + first_seed);
    for (size_t i = 0; i < p.size(); ++i) {
      m[i] = rule.beta1 * m[i] + (1 - rule.beta1) * g[i];
      v[i] = rule.beta2 * v[i] + (1 - rule.beta2) * g[i] * g[i];
      r[i] = m[i] / (1 - std::pow(rule.beta1, t)) / (std::sqrt(v[i] / (1 - std::pow(rule.beta2, t))) + rule.epsilon) +
             rule.weight_decay * p[i];
    }
    const double a = rule.adapt ? ratio(norm(p), norm(r)) : 1;
    for (size_t i = 0; i < p.size(); ++i) p[i] -= rate_scale * rate_at(number) * a * r[i];
  }
  return p;
}

TEST_CASE("lamb follows its formula") {
  const Lamb rule = {.beta1 = 0.875, .beta2 = 0.96875, .weight_decay = 0.125};
  const Lamb plain = {.beta1 = 0.75, .beta2 = 0.9, .weight_decay = 0, .adapt = false};
  Values expected = lamb(rule, eighths(5, 45), 0, false, 1);
  const Values q = lamb(plain, eighths(6, 46), 1, true, 0.5);
  expected.insert(expected.end(), q.begin(), q.end());
  CHECK(distance(Program(rule, plain, DType::f64).run(), expected) < 1e-13);
  CHECK(distance(Program(rule, plain, DType::f64).run(0.25), expected) < 1e-13);
  CHECK(distance(Program(rule, plain, DType::f32).run(), expected) < 5e-6);
}

TEST_CASE("lars and lamb use the plain rate if a parameter or its gradient is zero") {
  for (const Rule& rule : {Rule(Lars{.momentum = 0}), Rule(Lamb{.weight_decay = 0})}) {
    INFO(name(rule));
    Parameter p("p", Tensor::zeros({3}, DType::f64)), still("still", Tensor::full({3}, 2, DType::f64));
    Optimizer optimizer({&p, &still}, rule);
    Gradients gradients;
    gradients.add(p, Tensor::full({3}, 1, DType::f64));
    gradients.add(still, Tensor::zeros({3}, DType::f64));
    optimizer.step(gradients, 0.5);
    CHECK(distance(p.value.values(), {-0.5, -0.5, -0.5}) < 1e-6);
    CHECK(still.value.values() == Values{2, 2, 2});
  }
}

TEST_CASE("the first step of adam equals the rate for any gradient size") {
  for (const double size : {1e-3, 1.0, 1e3}) {
    Parameter p("p", Tensor::from({2}, {1, 1}, DType::f64));
    Optimizer adam({&p}, Adam{.epsilon = 1e-30});
    Gradients gradients;
    gradients.add(p, Tensor::from({2}, {size, -size}, DType::f64));
    adam.step(gradients, 0.25);
    CHECK(distance(p.value.values(), {0.75, 1.25}) < 1e-14);
  }
}

TEST_CASE("adamw without a gradient only shrinks weights, and adam's weight decay goes through its moments") {
  Parameter p("p", Tensor::full({1}, 8, DType::f64)), q("q", Tensor::full({1}, 8, DType::f64));
  Optimizer adamw({&p}, AdamW{.weight_decay = 0.5}), adam({&q}, Adam{.weight_decay = 0.5});
  Gradients gradients;
  gradients.add(p, Tensor::zeros({1}, DType::f64));
  gradients.add(q, Tensor::zeros({1}, DType::f64));
  adamw.step(gradients, 0.25);
  adam.step(gradients, 0.25);
  CHECK(p.value.item() == 7);
  CHECK(q.value.item() == Approx(7.75));
}

TEST_CASE("bf16 parameters are rounded f32 master weights, which move by less than bf16 can represent") {
  for (const DType gradient_type : {DType::bf16, DType::f32}) {
    const Tensor start = Tensor::from({40}, eighths(40, 3), DType::bf16);
    Parameter narrow("narrow", start.clone()), wide("wide", start.to(DType::f32));
    Optimizer of_narrow({&narrow}, AdamW{}), of_wide({&wide}, AdamW{});
    for (int step = 0; step < 50; ++step) {
      Tensor flat = Tensor::zeros({1024}, gradient_type);
      flat.slice(0, 40).copy_from(Tensor::from({40}, eighths(40, step), gradient_type));
      of_narrow.step(flat, {true}, 1e-4);
      of_wide.step(flat.to(DType::f32), {true}, 1e-4);
    }
    CHECK(narrow.value.values() == wide.value.to(DType::bf16).values());
    CHECK(narrow.value.values() != start.values());
    CHECK(of_narrow.state().back().name == "adamw.master");
    CHECK(of_narrow.state().back().values.values() == wide.value.values());
  }
}

TEST_CASE("master weights can adopt values set from elsewhere") {
  for (const bool adopt : {false, true}) {
    Parameter p("p", Tensor::full({4}, 1, DType::bf16));
    Optimizer sgd({&p}, Sgd{});
    p.value.copy_from(Tensor::full({4}, 3, DType::bf16));
    if (adopt) sgd.adopt_values();
    Gradients gradients;
    gradients.add(p, Tensor::full({4}, 1, DType::bf16));
    sgd.step(gradients, 0.5);
    CHECK(p.value.values() == std::vector<double>(4, adopt ? 2.5 : 0.5));
  }
}

TEST_CASE("optimizers refuse impossible options by name, and duplicate parameters") {
  Parameter p("p", Tensor::zeros({1})), q("q", Tensor::zeros({1}));
  CHECK_THROWS_WITH(Optimizer({&p}, Adam{.beta1 = 1}), "adam: beta1 1 is outside [0, 1)");
  CHECK_THROWS_WITH(Optimizer({&p}, AdamW{.epsilon = 0}), "adamw: epsilon 0 is not above 0");
  CHECK_THROWS_AS(Optimizer({&p}, Lamb{.epsilon = 1e-60}), Error);
  CHECK_THROWS_AS(Optimizer({&p}, Lars{.weight_decay = -1}), Error);
  CHECK_THROWS_AS(Optimizer({&p}, Sgd{.nesterov = true}), Error);
  CHECK_THROWS_WITH(Optimizer({{{&p}, Sgd{}}, {{&p, &q}, Adam{}}}), "flat: p is there twice");
  CHECK_THROWS_WITH(Optimizer({&p}, Muon{}), "muon: p is (1), no matrix; give it to AdamW, in a group of its own");
  CHECK_THROWS_WITH(Optimizer({&p}, Adafactor{.d = 0.5}), "adafactor: d 0.5 is below 1");
  CHECK_THROWS_AS(Optimizer({&p}, Adafactor{.beta2_decay = 0.5}), Error);
  CHECK_THROWS_AS(Optimizer({&p}, Muon{.momentum = 1}), Error);
  CHECK_THROWS_WITH(Optimizer({&p, &p}, Sgd{}), "flat: p is there twice");
}

}  // namespace
}  // namespace weft
