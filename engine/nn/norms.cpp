#include "engine/nn/norms.h"

#include "engine/ops/elementwise.h"
#include "engine/ops/normalize.h"
#include "engine/ops/reduce.h"

namespace weft {

LayerNorm::LayerNorm(const std::string& name, int64_t width, const Init& init, double epsilon)
    : gamma(name + ".gamma", init.full({width}, 1)), beta(name + ".beta", init.full({width}, 0)), epsilon_(epsilon) {
  has(gamma);
  has(beta);
}

Var LayerNorm::apply(const Var& x, const Pass&) { return layer_norm(x, use(x, gamma), use(x, beta), epsilon_); }

BatchNorm::BatchNorm(const std::string& name, int64_t width, const Init& init, double momentum, double epsilon)
    : gamma(name + ".gamma", init.full({width}, 1)),
      beta(name + ".beta", init.full({width}, 0)),
      running_mean(name + ".running_mean", init.full({width}, 0)),
      running_variance(name + ".running_variance", init.full({width}, 1)),
      momentum_(momentum),
      epsilon_(epsilon) {
  has(gamma);
  has(beta);
  has_buffer(running_mean);
  has_buffer(running_variance);
}

Var BatchNorm::apply(const Var& x, const Pass& pass) {
  require(x.shape()[-1] == gamma.value.size(), "BatchNorm: '", gamma.name, "' has ", gamma.value.size(),
          " channels, the input is ", x.shape());
  Var centered, variance;
  if (pass.training) {
    const int64_t count = total(x.shape().product(0, x.shape().rank() - 1));
    require(count > 1, "BatchNorm: '", gamma.name, "' has ", count, " values per channel in ", x.shape(),
            "; training needs at least two");
    const double part = 1 / static_cast<double>(count);
    const Var mean = total(sum_outside(x, -1)) * part;
    // Squares of what is left, since a difference of large squares would lose the variance to rounding.
    centered = sub_along(x, mean, -1);
    variance = total(sum_outside(square(centered), -1)) * part;
    if (!x.tape() || !x.tape()->recomputing()) remember(mean.value(), variance.value(), count);
  } else {
    centered = sub_along(x, running_mean.value, -1);
    variance = running_variance.value;
  }
  return add_along(mul_along(centered, use(x, gamma) * rsqrt(variance + epsilon_), -1), use(x, beta), -1);
}

// New tensors, not new values in the old ones: a tape may still hold those.
void BatchNorm::remember(const Tensor& mean, const Tensor& variance, int64_t count) {
  const double unbiased = static_cast<double>(count) / static_cast<double>(count - 1);
  const auto moved = [&](const Parameter& average, const Tensor& to, double scale) {
    return (Var(average.value) * (1 - momentum_) + Var(to) * (momentum_ * scale)).value();
  };
  running_mean.value = moved(running_mean, mean, 1);
  running_variance.value = moved(running_variance, variance, unbiased);
}

}  // namespace weft
