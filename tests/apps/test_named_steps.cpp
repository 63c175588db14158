// SPDX-License-Identifier: Apache-2.0
// The optimizers and schedules that options name.
#include "apps/shared/choices/named_rule.h"
#include "apps/shared/choices/named_schedule.h"
#include "tests/support/catch.h"
#include "tests/support/message_of.h"
#include "weft/engine/nn/linear.h"
#include "weft/engine/nn/norm_layers.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"

namespace weft {
namespace {

TEST_CASE("every named optimizer moves every parameter, with the numbers that it is given") {
  CHECK(names_of_rules().size() == std::variant_size_v<Rule>);
  for (const std::string& called : names_of_rules()) {
    INFO(called);
    const RuleChoice choice = {.name = called, .weight_decay = 0.25, .momentum = 0.5, .beta1 = 0.75, .beta2 = 0.5};
    CHECK(name(choice.make()) == called);
    const Init init = {.key = {3}, .dtype = DType::f64};
    Linear linear("linear", 3, 4, init);
    LayerNorm norm("norm", 4, init);
    std::vector<Parameter*> parameters = linear.parameters();
    for (Parameter* p : norm.parameters()) parameters.push_back(p);
    Optimizer optimizer(choice.groups(parameters));
    Gradients gradients;
    Tape tape;
    const Var y = norm(linear(tape.constant(Tensor::uniform({5, 3}, {4}, -1, 1, DType::f64))));
    tape.backward(sum(y * Var(Tensor::uniform({5, 4}, {5}, -1, 1, DType::f64))), gradients);
    std::vector<std::vector<double>> before;
    for (const Parameter* p : parameters) before.push_back(p->value.values());
    optimizer.step(gradients, 0.1);
    for (size_t i = 0; i < parameters.size(); ++i) CHECK(parameters[i]->value.values() != before[i]);
  }
}

TEST_CASE("a rule has the numbers of its options") {
  const RuleChoice choice = {.name = "adamw", .weight_decay = 0.25, .momentum = 0.5, .beta1 = 0.75, .beta2 = 0.5};
  const AdamW adamw = std::get<AdamW>(choice.make());
  CHECK((adamw.weight_decay == 0.25 && adamw.beta1 == 0.75 && adamw.beta2 == 0.5));
  const auto named = [&](const char* called) {
    RuleChoice other = choice;
    other.name = called;
    return other.make();
  };
  CHECK(std::get<Sgd>(named("sgd")).momentum == 0.5);
  CHECK(std::get<Lamb>(named("lamb")).beta1 == 0.75);
  CHECK(std::get<Muon>(named("muon")).weight_decay == 0.25);
  CHECK_THROWS_WITH(named("adamax"), Catch::Contains("no optimizer called adamax"));
}

TEST_CASE("every named schedule rises, and ends where it says") {
  for (const std::string& called : names_of_schedules()) {
    INFO(called);
    const ScheduleChoice choice = {.name = called, .warmup = 10, .last_rate = 0.125, .factor = 0.5};
    const Schedule rate = choice.make(2, 100);
    CHECK((rate(0) > 0 && rate(0) < 0.5 && rate(10) == Approx(2).epsilon(0.01)));
    const double last = rate(99);
    if (called == "constant") CHECK(last == 2);
    if (called == "stairs") CHECK(last == Approx(0.5));
    if (called == "linear" || called == "cosine") CHECK((last >= 0.125 && last < 0.16));
    if (called == "one-cycle") CHECK(last < 0.01);
    CHECK(choice.make(2, 1)(0) > 0);  // a run of one step
  }
  CHECK_THROWS_WITH((ScheduleChoice{.name = "cosinus"}).make(1, 10), Catch::Contains("no schedule called cosinus"));
}

}  // namespace
}  // namespace weft
