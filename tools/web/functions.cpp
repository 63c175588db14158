// SPDX-License-Identifier: Apache-2.0
#include "tools/web/functions.h"

#include <algorithm>
#include <cmath>

#include "tools/web/task.h"
#include "tools/web/with_backward.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/nearest.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/text/suggestion.h"
#include "weft/losses/common/division.h"

namespace weft::web {
namespace {

// A scalar beside a larger tensor stands for as many of itself.
Var repeated(const Var& x, const Shape& shape) {
  Var y = x;
  for (int axis = shape.rank(); axis-- > 0;) y = repeat(y, 0, shape[axis]);
  return y;
}

// Of numbers and tensors. A number beside a tensor is a factor or a term of the op, or, if it is a rank's own, a
// constant on its tape.
template <class Op> Value arithmetic(const Call& call) {
  if (call.is_number(0) && call.is_number(1)) {
    const Number a = std::get<Number>(call.arguments[0]), b = std::get<Number>(call.arguments[1]);
    return Number{Op()(a.value, b.value), a.own || b.own};
  }
  const auto own = [&](size_t i) { return call.is_number(i) && std::get<Number>(call.arguments[i]).own; };
  const auto tensor = [&](size_t i) {
    return call.is_number(i) ? call.tape.constant(Tensor::full({}, call.number(i), DType::f64)) : call.var(i);
  };
  if (call.is_number(0) && !own(0)) return Op()(call.number(0), call.var(1));
  if (call.is_number(1) && !own(1)) return Op()(call.var(0), call.number(1));
  const Var a = tensor(0), b = tensor(1);
  if (a.shape().rank() == 0 && b.shape().rank() > 0) return Op()(repeated(a, b.shape()), b);
  if (b.shape().rank() == 0 && a.shape().rank() > 0) return Op()(a, repeated(b, a.shape()));
  return Op()(a, b);
}

struct Power {
  double operator()(double a, double b) const { return std::pow(a, b); }
  Var operator()(const Var& a, double b) const { return pow(a, b); }
  Var operator()(double a, const Var& b) const { return exp(std::log(a) * b); }
  Var operator()(const Var& a, const Var& b) const { return pow(a, b); }
};

Value negative_of(const Call& call) {
  if (!call.is_number(0)) return -call.var(0);
  const auto [value, own] = std::get<Number>(call.arguments[0]);
  return Number{-value, own};
}

template <Var (*op)(const Var&)> Value of_one(const Call& call) { return op(call.var(0)); }
template <Var (*op)(const Var&), Var (*along)(const Var&, int)> Value reduced(const Call& call) {
  if (call.count() == 1) return op(call.var(0));
  return along(call.var(0), static_cast<int>(call.whole_number(1)));
}
template <Var (*op)(const Var&, int)> Value over_last_axis(const Call& call) { return op(call.var(0), -1); }

Value concat_of(const Call& call) {
  std::vector<Var> parts;
  for (size_t i = 0; i < call.count(); ++i) parts.push_back(call.var(i));
  return concat(parts, 0);
}

Value one_hot_of(const Call& call) {
  const int64_t classes = call.whole_number(1);
  require(classes >= 1 && classes <= 100, "one_hot: ", classes, " classes, not 1 to 100");
  return one_hot(call.var(0), classes, DType::f64);
}

int64_t rows_of(const Var& x) { return x.shape().rank() == 0 ? 1 : x.shape()[0]; }

GroupRank rank_of(const Call& call, size_t i) {
  const int64_t rank = call.whole_number(i);
  require(rank >= 0 && rank < call.comm.size(), call.name, ": there is no rank ", rank, " of ", call.comm.size());
  return {static_cast<int>(rank)};
}

// Of what is divided among ranks, the rows are those of the argument `like`, or equal.
Rows rows_like(const Call& call, size_t like, int64_t all) {
  if (call.count() > like) return Division(rows_of(call.var(like)), call.comm).rows;
  require(all % call.comm.size() == 0, call.name, ": ", all, " rows cannot be divided equally among ", call.comm.size(),
          " ranks; name a tensor whose rows they should have");
  return Rows(static_cast<size_t>(call.comm.size()), all / call.comm.size());
}

AnyVerb verb_of(const Call& call, const Rows& rows) {
  const auto is = [&](const char* name) { return call.name == name; };
  const int64_t mine = rows_of(call.var(0)), size = call.comm.size();
  if (is("all_gather")) return AllGather{rows};
  if (is("reduce_scatter")) return ReduceScatter{rows_like(call, 1, mine)};
  if (is("all_reduce")) return AllReduce{};
  if (is("broadcast")) return Broadcast{rank_of(call, 1)};
  if (is("reduce")) return Reduce{rank_of(call, 1)};
  if (is("gather")) return Gather{rank_of(call, 1), rows};
  if (is("scatter")) {
    const GroupRank root = rank_of(call, 1);
    return Scatter{root, rows_like(call, 2, rows[static_cast<size_t>(root.value)])};
  }
  if (is("all_to_all")) return AllToAll{Counts(rows.size(), rows_like(call, 1, mine))};
  if (is("scan")) return Scan{};
  if (is("exscan")) return Exscan{};
  Sources sources(rows.size());
  const int64_t by = call.whole_number(1);
  for (int64_t r = 0; r < size; ++r) sources[static_cast<size_t>(r)] = ((r - by) % size + size) % size;
  return Permute{sources};
}

Value collective(const Call& call) {
  const Var& x = call.var(0);
  const Rows rows = Division(rows_of(x), call.comm).rows;
  const Task task{verb_of(call, rows), rows};
  return std::visit(
      [&](const auto& verb) {
        if (call.mistake.empty()) return run_linear(verb, x, call.comm, Site::here());
        check_input(verb, x, call.comm);
        return with_backward(verb, mistake_named(call.mistake).made_of(task.blocks()), x, call.comm);
      },
      task.verb);
}

template <Var (*op)(const Var&, Communicator&)> Value conversion(const Call& call) {
  return op(call.var(0), call.comm);
}
template <Var (*op)(const Var&, Communicator&, Site)> Value exchanging(const Call& call) {
  return op(call.var(0), call.comm, Site::here());
}

Value sum_of_numbers(const Call& call) { return Number{sum_over_ranks(call.number(0), call.comm)}; }

Number own_number(int64_t value) { return {static_cast<double>(value), true}; }

Value share_of(const Call& call) {
  if (!call.is_number(1)) return share(call.var(0), call.var(1), call.comm);
  return share(call.var(0), call.whole_number(1), call.comm);
}

}  // namespace

const Var& Call::var(size_t i) const {
  require(!is_number(i), name, ": argument ", i + 1, " is a number; a tensor is needed");
  return std::get<Var>(arguments[i]);
}
double Call::number(size_t i) const {
  require(is_number(i), name, ": argument ", i + 1, " is a tensor; a number is needed");
  return std::get<Number>(arguments[i]).value;
}
int64_t Call::whole_number(size_t i) const {
  const double given = number(i);
  require(std::abs(given) <= 1e6 && given == std::floor(given), name, ": argument ", i + 1, " is ", given,
          "; a whole number is needed");
  return static_cast<int64_t>(given);
}

const std::vector<Function>& functions() {
  static constexpr size_t any = 100;
  static const std::vector<Function> all = {
      {"+", 2, 2, arithmetic<std::plus<>>},
      {"-", 2, 2, arithmetic<std::minus<>>},
      {"*", 2, 2, arithmetic<std::multiplies<>>},
      {"/", 2, 2, arithmetic<std::divides<>>},
      {"^", 2, 2, arithmetic<Power>},
      {"neg", 1, 1, negative_of},
      {"abs", 1, 1, of_one<abs>},
      {"exp", 1, 1, of_one<exp>},
      {"log", 1, 1, of_one<log>},
      {"sqrt", 1, 1, of_one<sqrt>},
      {"square", 1, 1, of_one<square>},
      {"sin", 1, 1, of_one<sin>},
      {"cos", 1, 1, of_one<cos>},
      {"tanh", 1, 1, of_one<tanh>},
      {"sigmoid", 1, 1, of_one<sigmoid>},
      {"relu", 1, 1, of_one<relu>},
      {"gelu", 1, 1, of_one<gelu>},
      {"softplus", 1, 1, of_one<softplus>},
      {"detach", 1, 1, of_one<detach>},
      {"transpose", 1, 1, of_one<transpose>},
      {"sum", 1, 2, reduced<sum, sum>},
      {"mean", 1, 2, reduced<mean, mean>},
      {"max", 1, 2, reduced<max, max>},
      {"softmax", 1, 1, over_last_axis<softmax>},
      {"log_softmax", 1, 1, over_last_axis<log_softmax>},
      {"log_sum_exp", 1, 1, over_last_axis<log_sum_exp>},
      {"normalize", 1, 1, [](const Call& c) -> Value { return l2_normalize(c.var(0)); }},
      {"matmul", 2, 2, [](const Call& c) -> Value { return matmul(c.var(0), c.var(1)); }},
      {"concat", 1, any, concat_of},
      {"slice", 3, 3, [](const Call& c) -> Value { return slice(c.var(0), 0, c.whole_number(1), c.whole_number(2)); }},
      {"nearest", 2, 2, [](const Call& c) -> Value { return Var(nearest_rows(c.var(0).value(), c.var(1).value())); }},
      {"one_hot", 2, 2, one_hot_of},
      {"rows", 1, 1, [](const Call& c) -> Value { return own_number(rows_of(c.var(0))); }},
      {"rows_before", 1, 1,
       [](const Call& c) -> Value { return own_number(Division(rows_of(c.var(0)), c.comm).first); }},
      {"total", 1, 1, sum_of_numbers},
      {"share", 2, 2, share_of},
      {"all_gather", 1, 1, collective, true},
      {"reduce_scatter", 1, 2, collective, true},
      {"all_reduce", 1, 1, collective, true},
      {"broadcast", 2, 2, collective, true},
      {"reduce", 2, 2, collective, true},
      {"gather", 2, 2, collective, true},
      {"scatter", 2, 3, collective, true},
      {"all_to_all", 1, 2, collective, true},
      {"shift", 2, 2, collective, true},
      {"scan", 1, 1, collective, true},
      {"exscan", 1, 1, collective, true},
      {"vary", 1, 1, exchanging<vary>},
      {"all_reduce_equal", 1, 1, exchanging<all_reduce_equal>},
      {"own_rows", 1, 2,
       [](const Call& c) -> Value { return own_rows(c.var(0), rows_like(c, 1, rows_of(c.var(0))), c.comm); }},
      {"padded_rows", 1, 1,
       [](const Call& c) -> Value { return padded_rows(c.var(0), Division(rows_of(c.var(0)), c.comm).rows, c.comm); }},
      {"keep_on", 2, 2, [](const Call& c) -> Value { return keep_on(c.var(0), rank_of(c, 1), c.comm); }},
      {"as_invariant", 1, 1, conversion<as_invariant>},
      {"as_partial", 1, 1, conversion<as_partial>},
      {"as_varying", 1, 1, conversion<as_varying>},
  };
  return all;
}

const Function& function_named(const std::string& name) {
  std::vector<std::string> names;
  for (const Function& function : functions()) {
    if (name == function.name) return function;
    names.push_back(function.name);
  }
  throw Error("there is no function '" + name + "'" + suggestion(name, names));
}

}  // namespace weft::web
