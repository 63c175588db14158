// SPDX-License-Identifier: Apache-2.0
#include "tools/web/evaluation.h"

#include <algorithm>

#include "weft/collectives/group_placement.h"
#include "weft/collectives/linear_collective.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"

namespace weft::web {
namespace {

const Op defined_op{"defined", {}};
const CollectiveOp defined_collective{"defined collective"};

constexpr int most_nested_calls = 20, most_calls = 2000;

Tensor sum_of(const Tensor& a, const Tensor& b) { return a.defined() ? (Var(a) + Var(b)).value() : b; }

}  // namespace

Evaluation::Evaluation(const Program& program, const Settings& settings, Tape& tape, Communicator& comm)
    : program_(program), settings_(settings), tape_(&tape), comm_(comm) {
  declare_group(tape, comm);
}

void Evaluation::run() {
  for (const Statement& statement : program_.statements) try {
      run(statement);
      lines_of_nodes_.resize(static_cast<size_t>(tape_->size()), statement.line);
    } catch (const Fault&) {
      throw;
    } catch (const Error& error) {
      throw Error("line " + weft::text(statement.line) + ": " + error.what());
    }
  const Named* loss = find("loss");
  if (!walked_ && loss && !std::holds_alternative<Number>(loss->value) && std::get<Var>(loss->value).tracked())
    backward("loss");
}

void Evaluation::run(const Statement& statement) {
  switch (statement.kind) {
    case Statement::Kind::assign: {
      require(!find(statement.name), "there is a '", statement.name, "' already; choose another name");
      assigned_ = &statement.name;
      Scope scope;
      for (const Named& named : names_) scope[named.name] = named.value;
      Value value = evaluate(statement.value[0], scope);
      names_.push_back({statement.name, statement.line, std::move(value)});
      return;
    }
    case Statement::Kind::backward: return backward(statement.name);
    case Statement::Kind::sum_gradients: return sum_gradients();
  }
}

void Evaluation::backward(const std::string& name) {
  const Named* of = find(name);
  require(of, "there is no '", name, "'");
  require(!std::holds_alternative<Number>(of->value), "'", name, "' is a number, which has no gradient");
  const Var loss = std::get<Var>(of->value);
  require(loss.tracked(), "no gradient flows from '", name, "' to a leaf");
  std::vector<Named*> tracked;
  std::vector<Var> vars;
  for (Named& named : names_)
    if (const Var* x = std::get_if<Var>(&named.value); x && x->tracked()) {
      tracked.push_back(&named);
      vars.push_back(*x);
    }
  const std::vector<Var> gradients = tape_->gradient(loss, vars);
  walked_ = true;
  const Placement placement = placement_of(loss, comm_);
  const bool whole = placement == Placement::replicated || placement == Placement::invariant;
  objective_ += sum_over_ranks(loss.value().item(), comm_) / (whole ? comm_.size() : 1);
  for (size_t i = 0; i < vars.size(); ++i) {
    tracked[i]->cotangent = sum_of(tracked[i]->cotangent, gradients[i].value());
    for (Leaf& leaf : leaves_)
      if (leaf.name == tracked[i]->name) leaf.gradient = sum_of(leaf.gradient, gradients[i].value());
  }
}

void Evaluation::sum_gradients() {
  require(walked_, "there are no gradients before backward");
  for (Leaf& leaf : leaves_)
    if (leaf.parameter) leaf.gradient = comm_.all_reduce(leaf.gradient);
}

Value Evaluation::evaluate(const Expression& expression, const Scope& scope) {
  switch (expression.kind) {
    case Expression::Kind::number: return Number{expression.number};
    case Expression::Kind::literal: {
      const bool one = expression.literal.size() == 1;
      const Tensor value = tensor(expression, one ? Values::given : Values::drawn);
      return one ? replicated_constant(value) : tape_->constant(value);
    }
    case Expression::Kind::name: {
      if (const auto found = scope.find(expression.text); found != scope.end()) return found->second;
      if (expression.text == "rank") return Number{static_cast<double>(comm_.rank().value), true};
      if (expression.text == "W") return Number{static_cast<double>(comm_.size())};
      throw Error("there is no '" + expression.text + "' yet");
    }
    case Expression::Kind::call: return call(expression, scope);
  }
  return {};
}

Value Evaluation::call(const Expression& expression, const Scope& scope) {
  require(++calls_ <= most_calls, "the program has more than ", most_calls, " calls");
  const std::string& name = expression.text;
  if (name == "leaf" || name == "parameter") return leaf(name, expression.arguments[0]);
  std::vector<Value> arguments;
  for (const Expression& argument : expression.arguments) arguments.push_back(evaluate(argument, scope));
  if (const Definition* definition = definition_named(name)) {
    require(expression.mistake.empty(), name, ": only a collective takes a mistake in brackets");
    return apply(*definition, arguments);
  }
  const Function& function = function_named(name);
  require(arguments.size() >= function.least && arguments.size() <= function.most, name, ": ", arguments.size(),
          " arguments, not ", function.least, function.most > function.least ? " or more" : "");
  require(expression.mistake.empty() || function.collective, name, ": only a collective takes a mistake in brackets");
  Value result = function.compute({name, expression.mistake, arguments, *tape_, comm_});
  if (const Var* x = std::get_if<Var>(&result))
    require(x->size() <= most_values, name, ": more than ", most_values, " values on a rank");
  return result;
}

Value Evaluation::apply(const Definition& definition, const std::vector<Value>& arguments) {
  require(arguments.size() == definition.arguments.size(), definition.name, ": ", arguments.size(), " arguments, not ",
          definition.arguments.size());
  require(++nested_ <= most_nested_calls, definition.name, ": definitions call each other without an end");
  Value result;
  if (definition.pullbacks.empty()) {
    Scope scope;
    for (size_t i = 0; i < arguments.size(); ++i) scope[definition.arguments[i]] = arguments[i];
    result = evaluate(definition.value, scope);
  } else {
    result = recorded(definition, arguments);
  }
  --nested_;
  return result;
}

// The arguments in the order of a Recording: those with a pullback first.
struct Evaluation::Inputs {
  std::vector<const Var*> vars;
  std::vector<const Expression*> pullbacks;
  Scope constants, plain;  // of their values: placed as they are, and without a placement
};

Evaluation::Inputs Evaluation::inputs_of(const Definition& definition, const std::vector<Value>& arguments,
                                         Tape& tape) const {
  Inputs inputs;
  for (const bool with_pullback : {true, false})
    for (size_t i = 0; i < arguments.size(); ++i) {
      const std::string& name = definition.arguments[i];
      const auto found = std::find_if(definition.pullbacks.begin(), definition.pullbacks.end(),
                                      [&](const auto& each) { return each.first == name; });
      if ((found != definition.pullbacks.end()) != with_pullback) continue;
      const Var* x = std::get_if<Var>(&arguments[i]);
      require(x || !with_pullback, definition.name, ": argument '", name, "' is a number, which has no pullback");
      inputs.constants[name] = inputs.plain[name] = arguments[i];
      if (!x) continue;
      const Placement placement = placement_of(*x, comm_);
      const bool equal = placement == Placement::replicated || placement == Placement::constant;
      inputs.constants[name] = equal ? replicated_constant(x->value()) : tape.constant(x->value());
      inputs.plain[name] = Var(x->value());
      inputs.vars.push_back(x);
      if (with_pullback) inputs.pullbacks.push_back(&found->second);
    }
  return inputs;
}

// The value is computed on a tape of its own, where the arguments are constants.
Var Evaluation::recorded(const Definition& definition, const std::vector<Value>& arguments) {
  Tape apart;
  declare_group(apart, comm_);
  Inputs inputs = inputs_of(definition, arguments, apart);
  Tape* const before = std::exchange(tape_, &apart);
  const Var value = tensor_of(definition.value, inputs.constants, definition.name + ": its value");
  tape_ = before;

  const bool exchanges = communicates(definition.value) ||
                         std::any_of(inputs.pullbacks.begin(), inputs.pullbacks.end(),
                                     [&](const Expression* pullback) { return communicates(*pullback); });
  const Op& op = exchanges ? static_cast<const Op&>(defined_collective) : defined_op;
  Recording recording(op, value.value(), inputs.vars, inputs.pullbacks.size());
  inputs.plain["y"] = Var(value.value());
  for (size_t i = 0; i < inputs.pullbacks.size(); ++i)
    recording.add(
        from(*inputs.vars[i], [this, scope = inputs.plain, name = definition.name, pullback = inputs.pullbacks[i],
                               shape = inputs.vars[i]->shape()](const Var& g) mutable {
          scope["g"] = Var(g.value());
          const Var back = tensor_of(*pullback, scope, name + ": the pullback");
          require(back.shape() == shape, name, ": the pullback gives ", back.shape(), " where the input has ", shape);
          return Var(back.value());
        }));
  const Var result = recording.finish();
  if (!exchanges) return result;
  const Placement placement = placement_of(value, comm_);
  return collective_result(result, comm_,
                           placement == Placement::constant ? Placement::replicated : Placement::varying);
}

Var Evaluation::tensor_of(const Expression& expression, const Scope& scope, const std::string& what) {
  const Value value = evaluate(expression, scope);
  require(!std::holds_alternative<Number>(value), what, " is a number; a tensor is needed");
  return std::get<Var>(value);
}

Var Evaluation::leaf(const std::string& kind, const Expression& literal) {
  const bool parameter = kind == "parameter";
  require(assigned_, "a leaf needs a name: 'x = leaf 3'");
  const Values values = parameter ? Values::drawn_equal : Values::drawn;
  Tensor value = tensor(literal, values);
  const Tensor direction = drawn(value.shape(), literal, values, 1);
  if (settings_.shift != 0) value = (Var(value) + Var(direction) * settings_.shift).value();
  leaves_.push_back({*assigned_, parameter, direction});
  require(std::count_if(leaves_.begin(), leaves_.end(), [&](const Leaf& l) { return l.name == *assigned_; }) == 1,
          "only one leaf can be called '", *assigned_, "'");
  if (!parameter) return tape_->watch(value);
  return tape_->watch(parameters_.emplace_back(*assigned_, value));
}

// As the program says; or drawn, equal on all ranks or not.
Tensor Evaluation::tensor(const Expression& expression, Values values) {
  require(expression.kind == Expression::Kind::literal, "values are needed");
  const bool one = expression.literal.size() == 1;
  const Literal& mine = expression.literal[one ? 0 : static_cast<size_t>(comm_.rank().value)];
  const Shape shape(mine.shape);
  if (settings_.seed != 0 && values != Values::given) return drawn(shape, expression, values, 0);
  return Tensor::from(shape, mine.values, DType::f64);
}

Tensor Evaluation::drawn(const Shape& shape, const Expression& literal, Values values, uint64_t kind) const {
  const auto rank = static_cast<uint64_t>(values == Values::drawn_equal ? 0 : comm_.rank().value + 1);
  const Random random{settings_.seed, 100 * static_cast<uint64_t>(literal.place) + 10 * kind + rank};
  return Tensor::normal(shape, random, 0, 1, DType::f64);
}

const Definition* Evaluation::definition_named(const std::string& name) const {
  for (const Definition& definition : program_.definitions)
    if (definition.name == name) return &definition;
  return nullptr;
}

bool Evaluation::communicates(const Expression& expression) const {
  if (expression.kind == Expression::Kind::call && expression.text != "leaf" && expression.text != "parameter" &&
      !definition_named(expression.text) && function_named(expression.text).collective)
    return true;
  return std::any_of(expression.arguments.begin(), expression.arguments.end(),
                     [&](const Expression& argument) { return communicates(argument); });
}

Evaluation::Named* Evaluation::find(const std::string& name) {
  const auto found = std::find_if(names_.begin(), names_.end(), [&](const Named& named) { return named.name == name; });
  return found == names_.end() ? nullptr : &*found;
}

}  // namespace weft::web
