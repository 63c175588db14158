#include "engine/exact.h"

#include <cmath>
#include <limits>

#include "engine/ops/elementwise.h"

namespace weft {

Tensor exact_parts(const Tensor& x) {
  require(is_floating(x.dtype()), "exact_parts: of floating values, not of ", x.dtype());
  const auto filled = [&](double value) { return Tensor::full(x.shape(), value, DType::f64, x.device()); };
  Tensor parts(exact_shape(x.shape()), DType::f64, x.device()), rest = x.to(DType::f64);
  rest = where(less(abs(rest).value(), filled(0x1p24)), rest, filled(std::numeric_limits<double>::quiet_NaN())).value();
  for (int64_t i = 0; i < 4; ++i) {
    const double unit = std::ldexp(1, -8 - 32 * static_cast<int>(i));
    const Tensor multiple = (round(Var(rest) / unit) * unit).value();
    parts.slice(i, i + 1).reshape(x.shape()).copy_from(multiple);
    rest = (Var(rest) - multiple).value();
  }
  return parts;
}

// The smallest first, so that little is rounded.
Tensor exact_total(const Tensor& parts, DType dtype) {
  require(parts.dtype() == DType::f64 && parts.shape().rank() > 0 && parts.shape()[0] == 4,
          "exact_total: parts are f64 (4, ...), not ", parts.dtype(), " ", parts.shape());
  const auto part = [&](int64_t i) { return Var(parts.slice(i, i + 1).reshape(parts.shape().without(0))); };
  return (part(3) + part(2) + part(1) + part(0)).value().to(dtype);
}

}  // namespace weft
