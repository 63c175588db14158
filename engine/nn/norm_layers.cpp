// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/nn/norm_layers.h"

#include <algorithm>

#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"

namespace weft {

LayerNorm::LayerNorm(const std::string& name, int64_t width, const Init& init, Activation activation, double epsilon)
    : gamma(name + ".gamma", init.full({width}, 1)),
      beta(name + ".beta", init.full({width}, 0)),
      activation_(activation),
      epsilon_(epsilon) {
  register_parameter(gamma);
  register_parameter(beta);
}

Var LayerNorm::apply(const Var& x, const Pass&) {
  return layer_norm(x, bind(x, gamma), bind(x, beta), epsilon_, activation_);
}

// In bf16 an average would stop at 9.75 on its way to 10, and a count above 256 would be rounded.
static DType wide(DType dtype) { return dtype == DType::bf16 ? DType::f32 : dtype; }

static Var as(const Var& x, DType dtype) { return x.dtype() == dtype ? x : cast(x, dtype); }

static Tensor buffer(int64_t width, double value, const Init& init) {
  return Tensor::full({width}, value, wide(init.dtype), init.device);
}

BatchNorm::BatchNorm(const std::string& name, int64_t width, const Init& init, double momentum, double epsilon)
    : gamma(name + ".gamma", init.full({width}, 1)),
      beta(name + ".beta", init.full({width}, 0)),
      running_mean(name + ".running_mean", buffer(width, 0, init)),
      running_variance(name + ".running_variance", buffer(width, 1, init)),
      momentum_(momentum),
      epsilon_(epsilon) {
  register_parameter(gamma);
  register_parameter(beta);
  register_buffer(running_mean);
  register_buffer(running_variance);
}

// Values are measured from a constant near the mean, so that neither squares of large values nor the rounding of a
// large mean hides a small deviation.
BatchNorm::Statistics BatchNorm::statistics(const Var& x) const {
  const int64_t count = x.shape().product(0, x.shape().rank() - 1);
  const auto average = [&](const Var& v) {
    return sum_outside(v, -1) / static_cast<double>(std::max<int64_t>(count, 1));
  };
  const Var origin = detach(average(x)), near = sub_along(x, origin, -1), mean = average(near);
  const Var centered = sub_along(near, mean, -1);
  return {count, origin, mean, average(square(centered)), centered};
}

Var BatchNorm::apply(const Var& input, const Pass& pass) {
  require(input.shape()[-1] == gamma.value.size(), "BatchNorm: '", gamma.name, "' has ", gamma.value.size(),
          " channels, the input is ", input.shape());
  const Var x = as(input, wide(input.dtype()));
  Var centered, variance;
  if (pass.training) {
    const Statistics batch = statistics(x);
    require(batch.count > 1, "BatchNorm: '", gamma.name, "' has ", batch.count, " values per channel in ", x.shape(),
            "; training needs at least two");
    if (!x.tape() || !x.tape()->recomputing()) update_averages(batch);
    centered = batch.centered;
    variance = batch.variance;
  } else {
    centered = sub_along(x, replicated_constant(running_mean.value), -1);
    variance = replicated_constant(running_variance.value);
  }
  const auto used = [&](const Parameter& parameter) { return as(bind(input, parameter), x.dtype()); };
  const Var y = add_along(mul_along(centered, used(gamma) * rsqrt(variance + epsilon_), -1), used(beta), -1);
  return as(y, input.dtype());
}

// Makes new tensors, because a tape may still hold the old ones.
void BatchNorm::update_averages(const Statistics& batch) {
  const double unbiased = static_cast<double>(batch.count) / static_cast<double>(batch.count - 1);
  const auto moved = [&](const Parameter& average, const Tensor& to, double scale) {
    return (Var(average.value) * (1 - momentum_) + Var(to) * (momentum_ * scale)).value();
  };
  running_mean.value = moved(running_mean, (batch.origin + batch.mean).value(), 1);
  running_variance.value = moved(running_variance, batch.variance.value(), unbiased);
}

}  // namespace weft
