// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/ops/reduce.h"

#include <cmath>

#include "weft/engine/kernels/backend.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/engine/tape/checks.h"
#include "weft/engine/tape/fused_gradients.h"
#include "weft/engine/tape/record.h"

namespace weft {
namespace {

Shape flat(const Var& x) { return {x.size()}; }

Tensor reduced(const Op& op, Reduction kind, const Var& x, int axis) {
  check_floating(op, x);
  Tensor y = memory_for_result(x, x.shape().without(axis));
  backend(x.device()).reduce(kind, x.value(), Along(x.shape(), axis), y);
  return y;
}

Tensor arg_reduced(const char* name, Reduction kind, const Tensor& x, int axis) {
  require(x.shape()[axis] > 0, name, ": axis ", axis, " of ", x.shape(), " is empty");
  Tensor y(x.shape().without(axis), DType::i64, x.device());
  backend(x.device()).arg_reduce(kind, x, Along(x.shape(), axis), y);
  return y;
}

std::vector<Sample> axes(Var (*f)(const Var&, int), double low = -1, double high = 1) {
  std::vector<Sample> samples;
  for (const int axis : {0, 1, -1})
    samples.push_back({"axis " + std::to_string(axis), {{2, 3, 4}}, [=](auto x) { return f(x[0], axis); }, low, high});
  return samples;
}
Sample all(Var (*f)(const Var&), double low = -1, double high = 1) {
  return {"all", {{2, 3}}, [f](auto x) { return f(x[0]); }, low, high};
}

// One sample a line.
// clang-format off
const Op sum_op{"sum", axes(sum), Algebra::linear};
const Op sum_all_op{"sum of all", {all(sum)}, Algebra::linear};
const Op sum_outside_op{"sum_outside", axes(sum_outside), Algebra::linear};
const Op repeat_op{"repeat", {
    {"in front", {{3, 2}}, [](auto x) { return repeat(x[0], 0, 4); }},
    {"between", {{3, 2}}, [](auto x) { return repeat(x[0], 1, 4); }},
    {"at the end", {{3, 2}}, [](auto x) { return repeat(x[0], -1, 4); }},
}, Algebra::linear};
const Op mean_op{"mean", axes(mean), Algebra::linear};
const Op max_op{"max", axes(max)};
const Op min_op{"min", axes(min)};
const Op prod_op{"prod", axes(prod)};
const Op log_sum_exp_op{"log_sum_exp", axes(log_sum_exp)};
const Op variance_op{"variance", {
    {"", {{2, 3, 4}}, [](auto x) { return variance(x[0], 1); }},
    {"unbiased", {{2, 3, 4}}, [](auto x) { return variance(x[0], -1, 1); }},
}};
const Op norm_op{"norm", axes(norm)};
const Op norm_all_op{"norm of all", {all(norm)}};
const Op cumulative_sum_op{"cumulative_sum", {
    {"", {{2, 3, 4}}, [](auto x) { return cumulative_sum(x[0], 1); }},
    {"reverse", {{2, 3, 4}}, [](auto x) { return cumulative_sum(x[0], -1, true); }},
}, Algebra::linear};
const Op top_k_op{"top_k", {
    {"largest", {{3, 5}}, [](auto x) { return top_k(x[0], 2).values; }},
    {"smallest along axis 0", {{5, 3}}, [](auto x) { return top_k(x[0], 2, 0, false).values; }},
}};
const Op sort_op{"sort", {{"", {{3, 5}}, [](auto x) { return sort(x[0]).values; }}}};
// clang-format on

// Moves an axis to the end. The other axes keep their order.
Var moved_to_end(const Var& x, int axis) {
  std::vector<int64_t> order;
  for (int i = 0; i < x.shape().rank(); ++i)
    if (i != axis) order.push_back(i);
  order.push_back(axis);
  return permute(x, Shape(order));
}

// The elements that attain the extreme y share its cotangent equally. The shares are constants.
struct ExtremeRule {
  Var x;
  Tensor y;
  int axis;

  std::array<Tensor, 1> fused(const Tensor& g) const {
    Tensor dx = Tensor::like(x.value());
    backend(x.device()).extreme_pullback(x.value(), y, g, Along(x.shape(), axis), dx);
    return {dx};
  }
  Var composed(size_t, const Var& g) const {
    const int64_t extent = x.shape()[axis];
    const Var attained = constant_like(equal(x.value(), repeat(y, axis, extent).value()).to(x.dtype()), x);
    const Var share = reciprocal(sum(attained, axis));
    return repeat(g * share, axis, extent) * attained;
  }
};

Var extreme(const Op& op, Reduction kind, const Var& x, int axis) {
  require(x.shape()[axis] > 0, op.name, ": axis ", axis, " of ", x.shape(), " is empty");
  const Tensor y = reduced(op, kind, x, axis);
  return record(op, y, from(x, FusedGradients(ExtremeRule{x, y, axis}).part(0)));
}

}  // namespace

Var sum(const Var& x, int axis) {
  axis = x.shape().index(axis);
  const int64_t extent = x.shape()[axis];
  return record(sum_op, reduced(sum_op, Reduction::sum, x, axis),
                from(x, [=](const Var& g) { return repeat(g, axis, extent); }));
}
Var sum(const Var& x) {
  const Tensor all = x.value().reshape(flat(x));
  return record(sum_all_op, reduced(sum_all_op, Reduction::sum, all, 0),
                from(x, [shape = x.shape()](const Var& g) { return reshape(repeat(g, 0, shape.size()), shape); }));
}
Var sum_outside(const Var& x, int axis) {
  axis = x.shape().index(axis);
  check_floating(sum_outside_op, x);
  Tensor y = memory_for_result(x, {x.shape()[axis]});
  backend(x.device()).reduce_outside(x.value(), Along(x.shape(), axis), y);
  return record(sum_outside_op, y, from(x, [=, shape = x.shape()](const Var& g) {
                  return add_along(constant_like(Tensor::zeros(shape, g.dtype(), g.device()), g), g, axis);
                }));
}
Var repeat(const Var& x, int axis, int64_t count) {
  require(count >= 0, "repeat: a count of ", count);
  const Shape shape = x.shape().with_inserted(axis, count);
  axis = axis < 0 ? axis + shape.rank() : axis;
  Tensor y(shape, x.dtype(), x.device());
  backend(x.device()).repeat(x.value(), Along(shape, axis), y);
  return record(repeat_op, y, from(x, [=](const Var& g) { return sum(g, axis); }));
}
Var mean(const Var& x) {
  require(x.size() > 0, "mean: of no elements, ", x.shape());
  return sum(x) / static_cast<double>(x.size());
}
Var mean(const Var& x, int axis) {
  require(x.shape()[axis] > 0, "mean: axis ", axis, " of ", x.shape(), " is empty");
  return sum(x, axis) / static_cast<double>(x.shape()[axis]);
}

Var max(const Var& x, int axis) { return extreme(max_op, Reduction::maximum, x, x.shape().index(axis)); }
Var min(const Var& x, int axis) { return extreme(min_op, Reduction::minimum, x, x.shape().index(axis)); }
Var max(const Var& x) { return max(reshape(x, flat(x)), 0); }
Var min(const Var& x) { return min(reshape(x, flat(x)), 0); }
Var prod(const Var& x) { return prod(reshape(x, flat(x)), 0); }

// The derivative with respect to an element is the product of the elements before it times the product of those after
// it. There is no division, so zeros are exact. The pullback is composed of slices, which is slow along long axes.
Var prod(const Var& x, int axis) {
  axis = x.shape().index(axis);
  return record(prod_op, reduced(prod_op, Reduction::product, x, axis), from(x, [=](const Var& g) {
                  const int64_t extent = x.shape()[axis];
                  const Shape one = x.shape().with(axis, 1);
                  const auto at = [&](int64_t i) { return slice(x, axis, i, i + 1); };
                  std::vector<Var> others(static_cast<size_t>(extent));
                  Var before = replicated_constant(Tensor::full(one, 1, x.dtype(), x.device())), after = before;
                  for (int64_t i = 0; i < extent; before = before * at(i++)) others[static_cast<size_t>(i)] = before;
                  for (int64_t i = extent; i-- > 0; after = after * at(i))
                    others[static_cast<size_t>(i)] = others[static_cast<size_t>(i)] * after;
                  if (others.empty()) return constant_like(Tensor::zeros(x.shape(), x.dtype(), x.device()), x);
                  return repeat(g, axis, extent) * concat(others, axis);
                }));
}

Var log_sum_exp(const Var& x, int axis) {
  axis = x.shape().index(axis);
  const int last = x.shape().rank() - 1;
  if (axis != last) return log_sum_exp(moved_to_end(x, axis), last);
  check_floating(log_sum_exp_op, x);
  Tensor y(x.shape().without(last), x.dtype(), x.device());
  backend(x.device()).log_sum_exp_rows(x.value(), y);
  return record(log_sum_exp_op, y,
                from(x, [=](const Var& g) { return repeat(g, last, x.shape()[last]) * softmax(x, last); }));
}

Var variance(const Var& x, int axis, int64_t lost_degrees) {
  const int64_t extent = x.shape()[axis];
  require(extent > lost_degrees, "variance: axis ", axis, " of ", x.shape(), " has too few elements");
  axis = x.shape().index(axis);
  const Var centered = x - repeat(mean(x, axis), axis, extent);
  return sum(square(centered), axis) / static_cast<double>(extent - lost_degrees);
}

// y = |x| and dy/dx = x / y. Where y is zero, so is x, and it is divided by one instead.
Var norm(const Var& x, int axis) {
  axis = x.shape().index(axis);
  const Tensor y = sqrt(sum(square(detach(x)), axis)).value();
  return record(norm_op, y, from(x, [=](const Var& g, const Var& y) {
                  const Var is_zero =
                      constant_like(equal(y.value(), Tensor::zeros(y.shape(), y.dtype(), y.device())), y);
                  const Var one = replicated_constant(Tensor::full(y.shape(), 1, y.dtype(), y.device()));
                  const Var divisor = where(is_zero, one, y);
                  return x * repeat(g / divisor, axis, x.shape()[axis]);
                }));
}
Var norm(const Var& x) { return norm(reshape(x, flat(x)), 0); }

Var cumulative_sum(const Var& x, int axis, bool reverse) {
  axis = x.shape().index(axis);
  check_floating(cumulative_sum_op, x);
  Tensor y = Tensor::like(x.value());
  backend(x.device()).cumulative_sum(x.value(), Along(x.shape(), axis), reverse, y);
  return record(cumulative_sum_op, y, from(x, [=](const Var& g) { return cumulative_sum(g, axis, !reverse); }));
}

Tensor argmax(const Tensor& x, int axis) { return arg_reduced("argmax", Reduction::maximum, x, axis); }
Tensor argmin(const Tensor& x, int axis) { return arg_reduced("argmin", Reduction::minimum, x, axis); }

TopK top_k(const Var& x, int64_t k, int axis, bool largest) {
  axis = x.shape().index(axis);
  const int64_t extent = x.shape()[axis];
  check_floating(top_k_op, x);
  require(k >= 0 && k <= extent, "top_k: ", k, " of the ", extent, " elements along axis ", axis, " of ", x.shape());
  Tensor values(x.shape().with(axis, k), x.dtype(), x.device()), indices(values.shape(), DType::i64, x.device());
  backend(x.device()).top_k(x.value(), Along(x.shape(), axis), k, largest, values, indices);
  const Var at = constant_like(indices, x);
  return {record(top_k_op, values, from(x, [=](const Var& g) { return put_along(g, at, axis, extent); })), at};
}
TopK sort(const Var& x, int axis, bool descending) { return top_k(x, x.shape()[axis], axis, descending); }

}  // namespace weft
