// SPDX-License-Identifier: Apache-2.0
#include "exercises/grader/lessons.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/tape/record.h"

namespace weft::grader {
namespace {

using Op2 = std::function<Var(const Var& a, const Var& b)>;

// Value, and derivatives of a sum with random factors. The second ones are of the first ones, with factors of their
// own.
Measure of_mean(const Op2& answer) {
  return [=](Communicator& comm, const Rows& samples) -> std::vector<Tensor> {
    const Shape shape{rows_of_rank(samples, comm.rank().value)};
    const auto draw = [&](uint64_t purpose) { return normal(shape, purpose, comm); };
    const auto positive = [&](uint64_t purpose) { return exp(Var(draw(purpose))).value(); };
    Tape tape;
    const Var a = tape.watch(positive(1)), b = tape.watch(positive(2));
    const Var mean = answer(a, b), loss = sum(mean * tape.constant(draw(3)));
    const std::vector<Var> first = tape.gradient(loss, {a, b}, Graph::create);
    const Var both = sum(first[0] * tape.constant(draw(4)) + first[1] * tape.constant(draw(5)));
    const std::vector<Var> second = tape.gradient(both, {a, b});
    return {mean.value(), first[0].value(), first[1].value(), second[0].value(), second[1].value()};
  };
}

Var root_of_product(const Var& a, const Var& b) { return sqrt(a * b); }

const Op mistaken_op{"geometric_mean", {}};
using Pullback = std::function<Var(const Var& g, const Var& c, const Var& other, const Var& own)>;
Var right_pullback(const Var& g, const Var& c, const Var& other, const Var&) { return g * other / (2 * c); }

Op2 with_pullbacks(const Pullback& of_a, const Pullback& of_b) {
  return [=](const Var& a, const Var& b) {
    return record(mistaken_op, root_of_product(a.value(), b.value()).value(),
                  from(a, [=](const Var& g, const Var& c) { return of_a(g, c, b, a); }),
                  from(b, [=](const Var& g, const Var& c) { return of_b(g, c, a, b); }));
  };
}

struct WrongPullback {
  const char* what;
  Pullback pullback;
};
using V = const Var&;
const WrongPullback wrong_pullbacks[] = {
    {"The value is right, but the factor 1/2 is missing in the pullback.",
     [](V g, V c, V other, V) { return g * other / c; }},
    {"An input is handed what belongs to the other one.", [](V g, V c, V, V own) { return g * own / (2 * c); }},
    {"The pullback does not multiply by g. It must be linear in the cotangent of the output.",
     [](V, V c, V other, V) { return other / (2 * c); }},
    {"This is the pullback of a b: the derivative of the root is missing.",
     [](V g, V, V other, V) { return g * other; }},
    {"The pullback does not divide by the root.", [](V g, V, V other, V) { return g * other / 2; }},
    {"The first derivative is right. In the second one the mean is a number, which has no derivative: a pullback used "
     "its value() or a constant.",
     [](V g, V c, V other, V) { return g * other / (2 * Var(c.value())); }},
    {"The first derivative is right. In the second one an input is a number, which has no derivative: a pullback used "
     "its value() or a constant.",
     [](V g, V c, V other, V) { return g * Var(other.value()) / (2 * c); }},
    {"The first derivative is right, and there is no second one: the pullback is made of numbers.",
     [](V g, V c, V other, V) { return g * Var((other / (2 * c)).value()); }},
};

}  // namespace

Lesson geometric_mean(const Op2& learner) {
  Lesson lesson{
      2,
      "an operation and its pullbacks",
      {{"the value"},
       {"the cotangent of a", 1},
       {"the cotangent of b", 1},
       {"the second derivative at a", 2},
       {"the second derivative at b", 2}},
      of_mean(learner),
      of_mean(root_of_product),
      {{"", "The value is the mean (a + b) / 2, not the root of a b.", of_mean([](V a, V b) { return (a + b) / 2; })},
       {"", "The value is a b, without the root.", of_mean([](V a, V b) { return a * b; })}}};
  for (const auto& [what, wrong] : wrong_pullbacks)  // in both pullbacks, or in one
    for (const Op2& mistaken :
         {with_pullbacks(wrong, wrong), with_pullbacks(wrong, right_pullback), with_pullbacks(right_pullback, wrong)})
      lesson.mistakes.push_back({"", what, of_mean(mistaken)});
  return lesson;
}

}  // namespace weft::grader
