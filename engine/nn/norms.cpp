#include "engine/nn/norms.h"

#include <algorithm>

#include "engine/ops/elementwise.h"
#include "engine/ops/normalize.h"
#include "engine/ops/reduce.h"

namespace weft {

LayerNorm::LayerNorm(const std::string& name, int64_t width, const Init& init, Activation activation, double epsilon)
    : gamma(name + ".gamma", init.full({width}, 1)),
      beta(name + ".beta", init.full({width}, 0)),
      activation_(activation),
      epsilon_(epsilon) {
  has(gamma);
  has(beta);
}

Var LayerNorm::apply(const Var& x, const Pass&) {
  return layer_norm(x, use(x, gamma), use(x, beta), epsilon_, activation_);
}

// In bf16 an average of 9.75 no longer moves towards 10, and a count above 256 is rounded.
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
  has(gamma);
  has(beta);
  has_buffer(running_mean);
  has_buffer(running_variance);
}

// Measured from a constant near the mean: neither squares of large values nor the rounding of a large mean may hide a
// small deviation.
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
    if (!x.tape() || !x.tape()->recomputing()) remember(batch);
    centered = batch.centered;
    variance = batch.variance;
  } else {
    centered = sub_along(x, same_everywhere(running_mean.value), -1);
    variance = same_everywhere(running_variance.value);
  }
  const auto used = [&](const Parameter& parameter) { return as(use(input, parameter), x.dtype()); };
  const Var y = add_along(mul_along(centered, used(gamma) * rsqrt(variance + epsilon_), -1), used(beta), -1);
  return as(y, input.dtype());
}

// New tensors, not new values in the old ones: a tape may still hold those.
void BatchNorm::remember(const Statistics& batch) {
  const double unbiased = static_cast<double>(batch.count) / static_cast<double>(batch.count - 1);
  const auto moved = [&](const Parameter& average, const Tensor& to, double scale) {
    return (Var(average.value) * (1 - momentum_) + Var(to) * (momentum_ * scale)).value();
  };
  running_mean.value = moved(running_mean, (batch.origin + batch.mean).value(), 1);
  running_variance.value = moved(running_variance, batch.variance.value(), unbiased);
}

}  // namespace weft
