// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/quantizers/mixed_radix.h"

#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/tape/checks.h"

namespace weft {

MixedRadix::MixedRadix(const std::string& name, const std::vector<int64_t>& levels, First first)
    : levels_(levels.begin(), levels.end()), places_(levels.size()) {
  constexpr int64_t limit = int64_t{1} << 48;  // f64 holds such numbers and distinguishes neighbouring quotients
  require(!levels.empty(), name, ": codes of no digits");
  const size_t n = levels.size();
  for (size_t i = 0; i < n; ++i) {
    const size_t j = first == First::least ? i : n - 1 - i;
    require(levels[j] > 1, name, ": digit ", j, " has ", levels[j], " levels; at least 2 are needed");
    places_[j] = static_cast<double>(size_);
    require(levels[j] <= limit / size_, name, ": more than 2^48 codes");
    size_ *= levels[j];
  }
}

Tensor MixedRadix::number(const Tensor& digits) const {
  const auto n = static_cast<int64_t>(places_.size());
  const Tensor places = Tensor::from({n, 1}, places_, DType::f64, digits.device());
  return matmul(digits.to(DType::f64), places).value().reshape({digits.shape()[0]}).to(DType::i64);
}

Tensor MixedRadix::digits(const Tensor& numbers, DType dtype) const {
  check_in_range({"indices", "index"}, numbers, size_);
  const auto n = static_cast<int64_t>(places_.size());
  const auto row = [&](const std::vector<double>& values) {
    return Var(Tensor::from({n}, values, DType::f64, numbers.device()));
  };
  // The whole part of x / v. The rounded value is at least 1 / 2v away from the nearest half.
  const auto quotient = [](const Var& x, const Var& v) {
    return round(div_along(sub_along(x, affine(v, 0.5, -0.5), -1), v, -1));
  };
  const Var levels = row(levels_), higher = quotient(repeat(numbers.to(DType::f64), -1, n), row(places_));
  return (higher - mul_along(quotient(higher, levels), levels, -1)).value().to(dtype);
}

}  // namespace weft
