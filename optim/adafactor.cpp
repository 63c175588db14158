// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/adafactor.h"

#include <cmath>
#include <limits>

#include "weft/collectives/sharding.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Sums over the group if it divides the parameter along this axis.
Var completed(const Var& sums, const Parameter& parameter, int axis) {
  const bool divided = is_divided(parameter) && parameter.sharding->axis == parameter.value.shape().index(axis);
  return divided ? Var(parameter.sharding->group.all_reduce(sums.value())) : sums;
}

void update_average(Tensor& average, const Var& value, double beta) {
  average.copy_from((Var(average) * beta + value * (1 - beta)).value());
}

}  // namespace

Factors::Factors(const Shape& parameter, DType dtype, Device device)
    : rows(Tensor::zeros(parameter.without(-1), dtype, device)),
      columns(Tensor::zeros(parameter.without(-2), dtype, device)) {}

Tensor Factors::direction(const Tensor& gradient, const Parameter& parameter, const UpdateScalars& scalars) {
  const Shape shape = parameter.value.shape(), whole = whole_shape(parameter);
  const Var g = cast(gradient.reshape(shape), rows.dtype()) * scalars.scale, squares = square(g);
  update_average(rows, completed(sum(squares, -1), parameter, -1) / static_cast<double>(whole[-1]), scalars.beta2);
  update_average(columns, completed(sum(squares, -2), parameter, -2) / static_cast<double>(whole[-2]), scalars.beta2);

  const int64_t height = shape[-2], width = shape[-1], count = shape.product(0, shape.rank() - 2);
  const Var of_rows = rows.reshape({count, height});
  const Var mean = completed(sum(of_rows, 1), parameter, -2) / static_cast<double>(whole[-2]);
  const Var relative = div_along(of_rows, clamp(mean, std::sqrt(scalars.epsilon), infinity), 0);
  const Var variance = matmul(reshape(relative, {count, height, 1}), Var(columns.reshape({count, 1, width})));
  return (g * rsqrt(clamp(reshape(variance, shape), scalars.epsilon, infinity))).value();
}

}  // namespace weft
