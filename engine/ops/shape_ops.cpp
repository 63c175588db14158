// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/ops/shape_ops.h"

#include <algorithm>
#include <numeric>

#include "weft/engine/kernels/backend.h"
#include "weft/engine/tape/checks.h"
#include "weft/engine/tape/record.h"

namespace weft {
namespace {

// One sample a line.
// clang-format off
const Op reshape_op{"reshape", {
    {"", {{2, 6}}, [](auto x) { return reshape(x[0], {3, 4}); }},
    {"to a scalar", {{1, 1}}, [](auto x) { return reshape(x[0], {}); }},
}, Algebra::linear};
const Op flatten_op{"flatten", {
    {"", {{2, 3, 4}}, [](auto x) { return flatten(x[0]); }},
    {"whole", {{2, 3}}, [](auto x) { return flatten(x[0], 0); }},
}, Algebra::linear};
const Op slice_op{"slice", {
    {"axis 0", {{4, 3}}, [](auto x) { return slice(x[0], 0, 1, 3); }},
    {"middle axis", {{2, 4, 3}}, [](auto x) { return slice(x[0], 1, 1, 3); }},
    {"last axis", {{2, 4}}, [](auto x) { return slice(x[0], -1, 0, 3); }},
}, Algebra::linear};
const Op pad_op{"pad", {
    {"axis 0", {{2, 3}}, [](auto x) { return pad(x[0], 0, 1, 2); }},
    {"middle axis", {{2, 2, 3}}, [](auto x) { return pad(x[0], 1, 2, 0, 0.5); }},
    {"last axis", {{2, 3}}, [](auto x) { return pad(x[0], -1, 0, 1, -1); }},
}, Algebra::linear};
const Op pad_with_value_op{"pad with a value", {  // not linear: ranks would add the value once each
    {"", {{2, 3}}, [](auto x) { return pad(x[0], 1, 1, 2, 0.5); }},
}};
const Op concat_op{"concat", {
    {"axis 0", {{2, 3}, {1, 3}}, [](auto x) { return concat(x, 0); }},
    {"middle axis", {{2, 1, 2}, {2, 3, 2}, {2, 2, 2}}, [](auto x) { return concat(x, 1); }},
    {"last axis", {{2, 3}, {2, 2}}, [](auto x) { return concat(x, -1); }},
    {"one part twice", {{2, 3}}, [](auto x) { return concat({x[0], x[0]}, 0); }},
}, Algebra::linear};
const Op stack_op{"stack", {
    {"in front", {{2, 3}, {2, 3}}, [](auto x) { return stack(x, 0); }},
    {"at the end", {{2, 3}, {2, 3}}, [](auto x) { return stack(x, -1); }},
}, Algebra::linear};
const Op permute_op{"permute_axes", {  // `permute` is the name of the collective
    {"", {{2, 3, 4}}, [](auto x) { return permute(x[0], {2, 0, 1}); }},
    {"four axes", {{2, 3, 2, 2}}, [](auto x) { return permute(x[0], {0, 3, 1, 2}); }},
}, Algebra::linear};
const Op swap_axes_op{"swap_axes", {{"", {{2, 3, 4}}, [](auto x) { return swap_axes(x[0], 0, -1); }}}, Algebra::linear};
const Op transpose_op{"transpose", {{"", {{2, 3}}, [](auto x) { return transpose(x[0]); }}}, Algebra::linear};
const Op flip_op{"flip", {
    {"axis 0", {{3, 2}}, [](auto x) { return flip(x[0], 0); }},
    {"middle axis", {{2, 3, 2}}, [](auto x) { return flip(x[0], 1); }},
    {"last axis", {{2, 3}}, [](auto x) { return flip(x[0], -1); }},
}, Algebra::linear};
// clang-format on

Shape axes_in_order(const Shape& shape) {
  int64_t order[Shape::max_rank];
  std::iota(order, order + shape.rank(), 0);
  return Shape(std::span<const int64_t>(order, order + shape.rank()));
}

Shape inverse(const Shape& order) {
  int64_t inverse[Shape::max_rank];
  for (int i = 0; i < order.rank(); ++i) inverse[order[i]] = i;
  return Shape(std::span<const int64_t>(inverse, order.rank()));
}

Tensor copied_slice(const Tensor& x, int axis, int64_t begin, int64_t end) {
  const Along from(x.shape(), axis);
  if (axis == 0) return x.slice(begin, end);
  Tensor y(x.shape().with(axis, end - begin), x.dtype(), x.device());
  backend(x.device()).copy_slab(x, from, begin, y, Along(y.shape(), axis), 0, end - begin);
  return y;
}

// The shape of the concatenation. The parts may differ only along `axis`.
Shape joined(std::span<const Var> parts, int axis) {
  int64_t extent = 0;
  for (const Var& part : parts) {
    check_defined(concat_op, part);
    require(part.shape().rank() == parts[0].shape().rank() &&
                part.shape().with(axis, 0) == parts[0].shape().with(axis, 0) && part.dtype() == parts[0].dtype(),
            "concat: ", part.dtype(), " ", part.shape(), " does not continue ", parts[0].dtype(), " ", parts[0].shape(),
            " along axis ", axis);
    check_one_device(concat_op, parts[0].device(), part.device());
    extent = sum_of_extents({extent, part.shape()[axis]});
  }
  return parts[0].shape().with(axis, extent);
}

template <class T> using Pooled = std::vector<T, pool::Allocator<T>>;

}  // namespace

Var reshape(const Var& x, const Shape& shape) {
  check_defined(reshape_op, x);
  if (shape == x.shape()) return x;
  return record(reshape_op, x.value().reshape(shape),
                from(x, [shape = x.shape()](const Var& g) { return reshape(g, shape); }));
}

Var flatten(const Var& x, int from) {
  const Shape& shape = x.shape();
  require(from >= 0 && from <= shape.rank(), "flatten: ", shape, " has no axis ", from);
  Shape result{shape.product(from, shape.rank())};
  for (int i = from; i-- > 0;) result = result.with_inserted(0, shape[i]);
  return reshape(x, result);
}

Var slice(const Var& x, int axis, int64_t begin, int64_t end) {
  check_defined(slice_op, x);
  axis = x.shape().index(axis);
  const int64_t after = x.shape()[axis] - end;
  require(0 <= begin && begin <= end && after >= 0, "slice: ", begin, " to ", end, " along axis ", axis, " of ",
          x.shape());
  return record(slice_op, copied_slice(x.value(), axis, begin, end),
                from(x, [=](const Var& g) { return pad(g, axis, begin, after); }));
}

Var pad(const Var& x, int axis, int64_t before, int64_t after, double value) {
  check_defined(pad_op, x);
  axis = x.shape().index(axis);
  require(before >= 0 && after >= 0, "pad: by ", before, " and ", after, " along axis ", axis, " of ", x.shape());
  const int64_t extent = x.shape()[axis];
  Tensor y = x.value();
  if (before > 0 || after > 0) {
    y = Tensor(x.shape().with(axis, sum_of_extents({before, extent, after})), x.dtype(), x.device());
    backend(x.device()).pad(x.value(), Along(x.shape(), axis), before, value, y);
  }
  return record(value == 0 ? pad_op : pad_with_value_op, y,
                from(x, [=](const Var& g) { return slice(g, axis, before, before + extent); }));
}

Var concat(std::span<const Var> parts, int axis) {
  require(!parts.empty(), "concat: there is nothing to join");
  axis = parts[0].shape().index(axis);
  const Shape shape = joined(parts, axis);
  const bool whole = parts.size() == 1;
  Tensor y = whole ? parts[0].value() : Tensor(shape, parts[0].dtype(), parts[0].device());
  Pooled<const Var*> inputs;
  int64_t begin = 0;
  for (const Var& part : parts) {
    const int64_t extent = part.shape()[axis];
    if (!whole)
      backend(y.device())
          .copy_slab(part.value(), Along(part.shape(), axis), 0, y, Along(y.shape(), axis), begin, extent);
    inputs.push_back(&part);
    begin += extent;
  }
  Recording node(concat_op, y, inputs, inputs.size());
  begin = 0;
  for (const Var& part : parts) {
    const int64_t end = begin + part.shape()[axis];
    node.add(part, [=](const Var& g) { return slice(g, axis, begin, end); });
    begin = end;
  }
  return node.finish();
}

Var stack(std::span<const Var> parts, int axis) {
  require(!parts.empty(), "stack: there is nothing to join");
  Pooled<Var> slices;
  for (const Var& part : parts) {
    require(part.shape() == parts[0].shape(), "stack: shapes differ, ", parts[0].shape(), " and ", part.shape());
    slices.push_back(reshape(part, part.shape().with_inserted(axis, 1)));
  }
  return concat(slices, axis);
}

Var permute(const Var& x, const Shape& order) {
  check_defined(permute_op, x);
  const Shape axes = axes_in_order(x.shape());
  require(std::is_permutation(order.begin(), order.end(), axes.begin(), axes.end()), "permute: ", order,
          " is not an order of the axes of ", x.shape());
  int64_t extents[Shape::max_rank];
  for (int i = 0; i < order.rank(); ++i) extents[i] = x.shape()[static_cast<int>(order[i])];
  Tensor y(Shape(std::span<const int64_t>(extents, axes.rank())), x.dtype(), x.device());
  backend(x.device()).permute(x.value(), order, y);
  return record(permute_op, y, from(x, [back = inverse(order)](const Var& g) { return permute(g, back); }));
}

Var swap_axes(const Var& x, int a, int b) {
  a = x.shape().index(a);
  b = x.shape().index(b);
  return a == b ? x : permute(x, axes_in_order(x.shape()).with(a, b).with(b, a));
}

Var transpose(const Var& x) {
  require(x.shape().rank() == 2, "transpose: a matrix is needed, not ", x.shape());
  return permute(x, {1, 0});
}

Var flip(const Var& x, int axis) {
  check_defined(flip_op, x);
  Tensor y = Tensor::like(x.value());
  backend(x.device()).flip(x.value(), Along(x.shape(), axis), y);
  return record(flip_op, y, from(x, [=](const Var& g) { return flip(g, axis); }));
}

}  // namespace weft
