// SPDX-License-Identifier: Apache-2.0
#include "tools/web/variants.h"

#include <algorithm>

#include "tools/web/functions.h"
#include "tools/web/mistakes.h"

namespace weft::web {
namespace {

Expression number(double value) {
  Expression made{Expression::Kind::number};
  made.number = value;
  return made;
}
Expression named(const std::string& name) { return {Expression::Kind::name, name}; }
Expression call(const std::string& function, std::vector<Expression> arguments) {
  Expression made{Expression::Kind::call, function};
  made.arguments = std::move(arguments);
  return made;
}

class Variants {
 public:
  explicit Variants(const Program& right) : program_(right) {}

  std::vector<Variant> all() {
    for (Statement& statement : program_.statements)
      for (Expression& value : statement.value) in(value);
    for (Definition& definition : program_.definitions) {
      in_pullbacks(definition);
      const auto pullbacks = std::exchange(definition.pullbacks, {});  // what they say, the value's own backward can
      in(definition.value);
      definition.pullbacks = pullbacks;
    }
    in_passes();
    return std::move(variants_);
  }

 private:
  void add(const std::string& name) { variants_.push_back({name, program_}); }
  // The program with `place` replaced.
  void with(Expression& place, Expression other, const std::string& name) {
    std::swap(place, other);
    add(name);
    std::swap(place, other);
  }

  void in(Expression& expression) {
    for (Expression& argument : expression.arguments) in(argument);
    if (expression.kind == Expression::Kind::name && expression.text != "rank" && expression.text != "W")
      with(expression, call("detach", {expression}), "a use of " + expression.text + " is lost (S32)");
    if (expression.kind != Expression::Kind::call) return;
    for (const Function& function : functions())
      if (function.collective && expression.text == function.name) in_collective(expression);
    if (expression.text == "share") in_share(expression.arguments[1]);
    if (expression.text == "detach") with(expression, expression.arguments[0], "detach is missing");
  }
  void in_collective(Expression& expression) {
    for (const Mistake& mistake : mistakes()) {
      const std::string signature = *mistake.signature ? std::string(" (") + mistake.signature + ")" : "";
      expression.mistake = mistake.name;
      add(mistake.name + signature + " in " + expression.text);
      expression.mistake.clear();
    }
  }
  void in_share(Expression& count) {
    with(count, call("/", {count, named("W")}), "each rank divides as if it were alone (S8)");
    with(count, call("*", {count, named("W")}), "divided by the number of ranks once more (S9)");
    with(count, number(1), "divided by nothing");
    for (const Statement& each : program_.statements) {
      if (each.kind != Statement::Kind::assign || each.value[0].kind == Expression::Kind::number) continue;
      const Expression rows = call("rows", {named(each.name)});
      with(count, rows, "divided by the own rows of " + each.name);
      with(count, call("*", {rows, named("W")}), "the mean of the means of uneven shards (S12)");
    }
  }
  void in_pullbacks(Definition& definition) {
    for (auto& [to, pullback] : definition.pullbacks) {
      const std::string of = " in the pullback to " + to;
      with(pullback, call("neg", {pullback}), "the sign" + of);
      with(pullback, call("*", {pullback, number(0)}), "nothing" + of);
      with(pullback, call("/", {pullback, named("g")}), "g is missing" + of);
      with(pullback, named("g"), "only g" + of);
      for (const auto& [other, of_other] : definition.pullbacks)
        if (other != to) with(pullback, of_other, "that of " + other + of);
    }
  }
  // Sums and passes that are missing, or too many.
  void in_passes() {
    std::vector<Statement>& statements = program_.statements;
    const std::vector<Statement> before = statements;
    const auto without = [&](Statement::Kind kind, const std::string& name) {
      std::erase_if(statements, [&](const Statement& each) { return each.kind == kind; });
      add(name);
      statements = before;
    };
    const auto is = [](Statement::Kind kind) { return [=](const Statement& each) { return each.kind == kind; }; };
    const auto passes = std::count_if(before.begin(), before.end(), is(Statement::Kind::backward));
    if (std::any_of(before.begin(), before.end(), is(Statement::Kind::sum_gradients))) {
      without(Statement::Kind::sum_gradients, "the gradients are never summed over ranks (S22)");
      statements.push_back({Statement::Kind::sum_gradients, 0});
      add("the gradients are summed over ranks once more");
      statements = before;
    }
    if (passes < 2) return;
    for (const Statement& pass : before) {
      if (pass.kind != Statement::Kind::backward) continue;
      std::erase_if(statements, [&](const Statement& each) { return each.line == pass.line; });
      add("the pass of " + pass.name + " is lost (S15)");
      statements = before;
      std::erase_if(statements, is(Statement::Kind::sum_gradients));
      for (size_t i = statements.size(); i-- > 0;)
        if (statements[i].kind == Statement::Kind::backward)
          statements.insert(statements.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                            {Statement::Kind::sum_gradients, 0});
      add("summed over ranks after each pass, what is summed already as well (S14)");
      statements = before;
    }
  }

  Program program_;
  std::vector<Variant> variants_;
};

}  // namespace

std::vector<Variant> variants(const Program& right) { return Variants(right).all(); }

}  // namespace weft::web
