// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/ops/index.h"

#include "weft/engine/kernels/backend.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/engine/tape/checks.h"
#include "weft/engine/tape/record.h"

namespace weft {
namespace {

Tensor indices_on(const Var& x, const Shape& shape, const std::vector<double>& values) {
  return Tensor::from(shape, values, DType::i64, x.device());
}

// One sample a line.
// clang-format off
const Op gather_rows_op{"gather_rows", {
    {"", {{4, 3}}, [](auto x) { return gather_rows(x[0], indices_on(x[0], {5}, {2, 0, 2, 3, 2})); }},
    {"table of indices", {{3, 2}}, [](auto x) { return gather_rows(x[0], indices_on(x[0], {2, 2}, {2, 1, 1, 0})); }},
    {"of scalars", {{4}}, [](auto x) { return gather_rows(x[0], indices_on(x[0], {3}, {3, 1, 1})); }},
}, Algebra::linear};
const Op scatter_add_rows_op{"scatter_add_rows", {
    {"", {{4, 3}}, [](auto x) { return scatter_add_rows(x[0], indices_on(x[0], {4}, {2, 0, 2, 4}), 5); }},
    {"table of indices", {{2, 2, 3}},
     [](auto x) { return scatter_add_rows(x[0], indices_on(x[0], {2, 2}, {1, 1, 0, 1}), 2); }},
}, Algebra::linear};
const Op take_along_op{"take_along", {
    {"last axis", {{2, 4}}, [](auto x) { return take_along(x[0], indices_on(x[0], {2, 3}, {3, 0, 3, 1, 2, 0}), -1); }},
    {"axis 0", {{3, 2}}, [](auto x) { return take_along(x[0], indices_on(x[0], {2, 2}, {2, 0, 1, 0}), 0); }},
    {"middle axis", {{2, 3, 2}},
     [](auto x) { return take_along(x[0], indices_on(x[0], {2, 2, 2}, {2, 0, 1, 0, 0, 1, 2, 1}), 1); }},
}, Algebra::linear};
const Op put_along_op{"put_along", {
    {"last axis", {{2, 3}},
     [](auto x) { return put_along(x[0], indices_on(x[0], {2, 3}, {3, 0, 3, 1, 2, 0}), -1, 4); }},
    {"middle axis", {{2, 2, 2}},
     [](auto x) { return put_along(x[0], indices_on(x[0], {2, 2, 2}, {2, 0, 1, 0, 0, 1, 2, 1}), 1, 3); }},
}, Algebra::linear};
// clang-format on

Indices checked(const Op& op, const Var& indices, int64_t bound) {
  return {{op.name.c_str(), "index"}, indices.value(), bound};
}

// The axes of `front`, followed by those of x after its first `skip` axes.
Shape rows_shape(const Shape& front, const Shape& x, int skip) {
  Shape result = front;
  for (int i = skip; i < x.rank(); ++i) result = result.with_inserted(-1, x[i]);
  return result;
}

// The positions, in the flattened tensor, of the elements that `indices` select along an axis of this extent.
Var flat_positions(const Var& indices, Along along, int64_t extent) {
  const Device device = indices.device();
  Backend& b = backend(device);
  Tensor outer = Tensor::arange(along.outer, DType::i64, device), at = Tensor::like(indices.value());
  const auto times = [&](const Tensor& a, int64_t factor, Tensor& y) {
    b.binary(Binary::Multiply, a, Tensor::full(a.shape(), static_cast<double>(factor), DType::i64, device), y);
  };
  times(outer, extent * along.inner, outer);
  times(indices.value(), along.inner, at);
  b.binary_along(Binary::Add, at, outer, Along(1, along.outer, along.extent * along.inner), at);
  if (along.inner > 1)
    b.binary_along(Binary::Add, at, Tensor::arange(along.inner, DType::i64, device),
                   Along(along.outer * along.extent, along.inner, 1), at);
  return constant_like(at, indices);
}

void check_along(const Op& op, const Var& indices, const Var& x, int axis) {
  check_defined(op, x);
  check_one_device(op, x.device(), indices.device());
  require(indices.shape().rank() == x.shape().rank() && indices.shape().with(axis, 0) == x.shape().with(axis, 0),
          op.name, ": indices ", indices.shape(), " do not fit ", x.shape(), " along axis ", axis);
}

}  // namespace

Var gather_rows(const Var& x, const Var& indices) {
  check_defined(gather_rows_op, x);
  require(x.shape().rank() > 0, "gather_rows: a scalar has no rows");
  check_one_device(gather_rows_op, x.device(), indices.device());
  const int64_t rows = x.shape()[0];
  Tensor y(rows_shape(indices.shape(), x.shape(), 1), x.dtype(), x.device());
  backend(x.device()).gather_rows(x.value(), checked(gather_rows_op, indices, rows), y);
  return record(gather_rows_op, y, from(x, [=](const Var& g) { return scatter_add_rows(g, indices, rows); }),
                data(indices));
}

Var scatter_add_rows(const Var& x, const Var& indices, int64_t rows) {
  check_floating(scatter_add_rows_op, x);
  check_one_device(scatter_add_rows_op, x.device(), indices.device());
  const Shape& front = indices.shape();
  require(rows >= 0 && front.rank() <= x.shape().rank() && std::equal(front.begin(), front.end(), x.shape().begin()),
          "scatter_add_rows: indices ", front, " and ", x.shape(), " into ", rows, " rows");
  Tensor y = memory_for_result(x, rows_shape({rows}, x.shape(), front.rank()));
  backend(x.device()).scatter_add_rows(x.value(), checked(scatter_add_rows_op, indices, rows), y);
  return record(scatter_add_rows_op, y, from(x, [=](const Var& g) { return gather_rows(g, indices); }), data(indices));
}

Var take_along(const Var& x, const Var& indices, int axis) {
  axis = x.shape().index(axis);
  check_along(take_along_op, indices, x, axis);
  const int64_t extent = x.shape()[axis];
  backend(x.device()).check_indices(checked(take_along_op, indices, extent));
  const Var at = flat_positions(indices, Along(indices.shape(), axis), extent);
  return gather_rows(reshape(x, {x.size()}), at);
}

Var put_along(const Var& x, const Var& indices, int axis, int64_t extent) {
  axis = x.shape().index(axis);
  check_along(put_along_op, indices, x, axis);
  require(indices.shape() == x.shape(), "put_along: indices ", indices.shape(), " for ", x.shape());
  backend(x.device()).check_indices(checked(put_along_op, indices, extent));
  const Shape shape = x.shape().with(axis, extent);
  const Var at = flat_positions(indices, Along(indices.shape(), axis), extent);
  return reshape(scatter_add_rows(x, at, shape.size()), shape);
}

Var one_hot(const Var& indices, int64_t classes, DType dtype) {
  Tensor y(indices.shape().with_inserted(-1, classes), dtype, indices.device());
  backend(indices.device()).one_hot({{"one_hot", "class"}, indices.value(), classes}, y);
  return constant_like(y, indices);
}

}  // namespace weft
