// One optimizer after the other, against PyTorch's values and plain loops.
#include <catch2/catch.hpp>
#include <cmath>
#include <deque>

#include "optim/optimizer.h"
#include "tests/optim_reference.h"

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

// The program of optim_reference.py: the second group has half the rate, and sometimes no gradient.
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
};

TEST_CASE("sgd, adam and adamw are where PyTorch's are after 20 steps of two groups, gradients missing at times") {
  for (const auto& [name, first, second, expected] : cases) {
    INFO(name);
    CHECK(distance(Program(first, second, DType::f64).run(), expected) < 1e-13);
    CHECK(distance(Program(first, second, DType::f32).run(), expected) < 2e-6);
  }
}

TEST_CASE("a gradient scale is as good as scaled gradients") {
  for (const auto& [name, first, second, expected] : cases) {
    INFO(name);
    CHECK(Program(first, second, DType::f64).run(0.25) == Program(first, second, DType::f64).run());
  }
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

TEST_CASE("lars and lamb take the plain rate where a parameter or its gradient is zero") {
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

TEST_CASE("a first step of adam is the rate, whatever the size of the gradient") {
  for (const double size : {1e-3, 1.0, 1e3}) {
    Parameter p("p", Tensor::from({2}, {1, 1}, DType::f64));
    Optimizer adam({&p}, Adam{.epsilon = 1e-30});
    Gradients gradients;
    gradients.add(p, Tensor::from({2}, {size, -size}, DType::f64));
    adam.step(gradients, 0.25);
    CHECK(distance(p.value.values(), {0.75, 1.25}) < 1e-14);
  }
}

TEST_CASE("adamw without a gradient only shrinks, adam's decay goes through its moments") {
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

TEST_CASE("bf16 parameters are the rounded f32 master weights, which move even where bf16 cannot") {
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

TEST_CASE("master weights that adopt values set from elsewhere go on from there") {
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

TEST_CASE("impossible numbers and mixed kinds are refused by name") {
  Parameter p("p", Tensor::zeros({1})), q("q", Tensor::zeros({1}));
  CHECK_THROWS_WITH(Optimizer({&p}, Adam{.beta1 = 1}), "adam: beta1 1 is outside [0, 1)");
  CHECK_THROWS_WITH(Optimizer({&p}, AdamW{.epsilon = 0}), "adamw: epsilon 0 is not above 0");
  CHECK_THROWS_AS(Optimizer({&p}, Lamb{.epsilon = 1e-60}), Error);
  CHECK_THROWS_AS(Optimizer({&p}, Lars{.weight_decay = -1}), Error);
  CHECK_THROWS_AS(Optimizer({&p}, Sgd{.nesterov = true}), Error);
  CHECK_THROWS_WITH(Optimizer({{{&p}, Sgd{}}, {{&q}, Adam{}}}),
                    "optimizer: adam beside sgd; each kind needs an optimizer of its own");
  CHECK_THROWS_WITH(Optimizer({&p, &p}, Sgd{}), "flat: p is there twice");
}

}  // namespace
}  // namespace weft
