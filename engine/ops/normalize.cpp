// SPDX-License-Identifier: Apache-2.0
// Ops on rows along the last axis have fused kernels. Their pullbacks are fused ops, too, named ..._slope, with h as
// their cotangent. The pullbacks of these are composed of other ops, so second derivatives exist.
#include "weft/engine/ops/normalize.h"

#include <limits>

#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/engine/tape/checks.h"
#include "weft/engine/tape/fused_gradients.h"
#include "weft/engine/tape/record.h"

namespace weft {
namespace {

std::vector<Sample> of_rows(Var (*f)(const Var&, int)) {
  return {{"rows", {{3, 4}}, [f](auto x) { return f(x[0], -1); }, -2, 2},
          {"middle axis", {{2, 4, 3}}, [f](auto x) { return f(x[0], 1); }, -2, 2},
          {"axis 0", {{4, 3}}, [f](auto x) { return f(x[0], 0); }, -2, 2},
          {"one row", {{5}}, [f](auto x) { return f(x[0], 0); }, -2, 2}};
}
// Shifts that keep four columns away from the kink of a relu.
Var on_and_off(const Var& like) {
  return replicated_constant(Tensor::from({4}, {3, -3, -3, 3}, like.dtype(), like.device()));
}

// One sample a line.
// clang-format off
const std::vector<Sample> standardize_samples = {
    {"", {{3, 4}}, [](auto x) { return standardize(x[0]); }},
    {"more axes", {{2, 2, 3}}, [](auto x) { return standardize(x[0], 0.1); }},
};
const std::vector<Sample> cross_entropy_samples = {
    {"", {{4, 3}},
     [](auto x) { return cross_entropy(x[0], Tensor::from({4}, {0, 2, 1, 2}, DType::i64, x[0].device())); }, -2, 2},
};

const Op softmax_op{"softmax", of_rows(softmax)};
const Op softmax_slope_op{"softmax_slope", of_rows(softmax), Algebra::linear_after_first};
const Op log_softmax_op{"log_softmax", of_rows(log_softmax)};
const Op log_softmax_slope_op{"log_softmax_slope", of_rows(log_softmax), Algebra::linear_after_first};
const Op l2_normalize_op{"l2_normalize", {
    {"", {{3, 4}}, [](auto x) { return l2_normalize(x[0]); }, 0.1, 1},
    {"more axes", {{2, 2, 3}}, [](auto x) { return l2_normalize(x[0]); }, 0.1, 1},
    {"below epsilon", {{2, 3}}, [](auto x) { return l2_normalize(x[0], 10); }},
}};
const Op standardize_op{"standardize", standardize_samples};
const Op standardize_slope_op{"standardize_slope", standardize_samples, Algebra::linear_after_first};
const Op layer_norm_op{"layer_norm", {
    {"", {{2, 3, 4}, {4}, {4}}, [](auto x) { return layer_norm(x[0], x[1], x[2]); }},
    {"relu", {{2, 3, 4}, {4}, {4}},
     [](auto x) { return layer_norm(x[0], x[1], x[2] + on_and_off(x[2]), 0.1, {Unary::Relu, {}}); }},
}};
const Op cross_entropy_op{"cross_entropy", cross_entropy_samples};
const Op cross_entropy_slope_op{"cross_entropy_slope", cross_entropy_samples, Algebra::linear_after_first};
// clang-format on

// Repeats one value per row for every element of the row.
Var wide(const Var& v, const Var& rows) { return repeat(v, -1, rows.shape()[-1]); }

Tensor slope(Normalizer kind, const Var& y, const Var& g) {
  Tensor dx = Tensor::like(g.value());
  backend(g.device()).normalize_rows_pullback(kind, y.value(), g.value(), dx);
  return dx;
}

// y (g - sum(g y)), the product of a symmetric matrix with g.
Var softmax_slope(const Var& y, const Var& g) {
  return record(softmax_slope_op, slope(Normalizer::softmax, y, g),
                from(y, [=](const Var& h) { return h * (g - wide(sum(g * y, -1), g)) - g * wide(sum(h * y, -1), g); }),
                from(g, [=](const Var& h) { return softmax_slope(y, h); }));
}

// g - exp(y) sum(g)
Var log_softmax_slope(const Var& y, const Var& g) {
  return record(log_softmax_slope_op, slope(Normalizer::log_softmax, y, g),
                from(y, [=](const Var& h) { return -(h * exp(y) * wide(sum(g, -1), g)); }),
                from(g, [=](const Var& h) { return h - wide(sum(h * exp(y), -1), h); }));
}

Var normalized(const Op& op, Normalizer kind, Var (*slope)(const Var&, const Var&), const Var& x, int axis) {
  check_floating(op, x);
  if (x.shape().index(axis) != x.shape().rank() - 1)
    return swap_axes(normalized(op, kind, slope, swap_axes(x, axis, -1), -1), axis, -1);
  Tensor y = Tensor::like(x.value());
  backend(x.device()).normalize_rows(kind, x.value(), y);
  return record(op, y, from(x, [=](const Var& g, const Var& y) { return slope(y, g); }));
}

// J g = r (g - mean(g) - y mean(g y)), where r = 1 / deviation and y = (x - mean) r; J is symmetric. Both r and y
// depend on x: dr/dx = -r^2 y / n and dy/dx = J.
Var standardize_slope(const Var& x, const Var& y, const Tensor& rstd, double epsilon, const Var& g) {
  Tensor dx = Tensor::like(g.value());
  backend(g.device()).standardize_rows_pullback(y.value(), rstd, g.value(), dx);
  return record(standardize_slope_op, dx,
                from(x,
                     [=](const Var& h) {
                       const Var r = rsqrt(variance(x, -1) + epsilon), gy = mean(g * y, -1), hy = mean(h * y, -1);
                       const Var wrt_r = mean(g * h, -1) - mean(g, -1) * mean(h, -1) - gy * hy;
                       const Var wrt_y = -(wide(r, g) * (h * wide(gy, g) + g * wide(hy, g)));
                       return standardize_slope(x, y, rstd, epsilon, wrt_y) - wide(wrt_r * square(r), y) * y;
                     }),
                from(g, [=](const Var& h) { return standardize_slope(x, y, rstd, epsilon, h); }));
}

// y = x / s with s = max(|x|, epsilon): dy/dx is 1 / s - x x' / (s s |x|), or 1 / s where |x| < epsilon.
struct UnitRule {
  Var x;
  double epsilon;
  Tensor lengths;

  std::array<Tensor, 1> fused(const Tensor& g) const {
    Tensor dx = Tensor::like(g);
    backend(g.device()).unit_rows_pullback(epsilon, x.value(), lengths, g, dx);
    return {dx};
  }
  Var composed(size_t, const Var& g) const {
    const Var length = norm(x, -1), divisor = wide(clamp(length, epsilon, std::numeric_limits<double>::infinity()), x);
    const Tensor least = Tensor::full(lengths.shape(), epsilon, lengths.dtype(), lengths.device());
    const Var free = constant_like(greater_equal(lengths, least).to(x.dtype()), x);
    const Var along = wide(free * sum(g * x, -1) / (length + (1.0 - free)), x);
    return g / divisor - x / square(divisor) * along;
  }
};

// The gradients of layer_norm.
struct LayerNormRule {
  Var x, gamma, beta;
  double epsilon;
  Tensor moments;
  Var rectified;  // y after a relu, else empty

  std::array<Tensor, 3> fused(const Tensor& g) const {
    Tensor dx = Tensor::like(g), dgamma = memory_for_gradient(gamma), dbeta = memory_for_gradient(beta);
    backend(g.device())
        .layer_norm_rows_pullback({x.value(), gamma.value(), moments, rectified.value()}, g, dx, dgamma, dbeta);
    const auto if_tracked = [](const Var& input, const Tensor& gradient) {
      return input.tracked() ? gradient : Tensor();
    };
    return {if_tracked(x, dx), if_tracked(gamma, dgamma), if_tracked(beta, dbeta)};
  }

  Var composed(size_t input, const Var& g) const {
    const Var before = rectified.defined() ? g * relu_slopes(g) : g;
    switch (input) {
      case 0: return standardize_pullback(mul_along(before, gamma, -1));
      case 1: return sum_outside(before * standardize(x, epsilon), -1);
      default: return sum_outside(before, -1);
    }
  }

 private:
  // Constants with the placements of the output.
  Var relu_slopes(const Var& g) const {
    Tensor slopes = Tensor::like(rectified.value());
    const Tensor ones = Tensor::full(g.shape(), 1, g.dtype(), g.device());
    backend(g.device()).slope(Unary::Relu, {}, rectified.value(), ones, slopes);
    return with_placements(slopes, g.placements().duals());
  }
  Var standardize_pullback(const Var& g) const {
    Tensor y = Tensor::like(x.value()), rstd(x.shape().without(-1), x.dtype(), x.device());
    backend(x.device()).standardize_rows(epsilon, x.value(), y, rstd);
    return standardize_slope(x, y, rstd, epsilon, g);
  }
};

Indices classes_of(const Var& logits, const Var& targets) {
  return {{"cross_entropy", "target"}, targets.value(), logits.shape()[1]};
}

// (softmax(x) - one_hot(targets)) g, with one g per row.
Var cross_entropy_slope(const Var& x, const Var& targets, const Var& g) {
  Tensor dx = Tensor::like(x.value());
  backend(x.device()).cross_entropy_rows_pullback(x.value(), classes_of(x, targets), g.value(), dx);
  return record(
      cross_entropy_slope_op, dx, from(x, [=](const Var& h) { return mul_along(softmax_slope(softmax(x), h), g, 0); }),
      from(g, [=](const Var& h) { return sum((softmax(x) - one_hot(targets, x.shape()[1], x.dtype())) * h, -1); }),
      data(targets));
}

}  // namespace

Var softmax(const Var& x, int axis) { return normalized(softmax_op, Normalizer::softmax, softmax_slope, x, axis); }
Var log_softmax(const Var& x, int axis) {
  return normalized(log_softmax_op, Normalizer::log_softmax, log_softmax_slope, x, axis);
}

Var l2_normalize(const Var& x, double epsilon) {
  check_floating(l2_normalize_op, x);
  const DType wide = x.dtype() == DType::bf16 ? DType::f32 : x.dtype();
  Tensor y = Tensor::like(x.value()), lengths(x.shape().without(-1), wide, x.device());
  backend(x.device()).unit_rows(epsilon, x.value(), y, lengths);
  return record(l2_normalize_op, y, from(x, FusedGradients(UnitRule{x, epsilon, lengths}).part(0)));
}

Var standardize(const Var& x, double epsilon) {
  check_floating(standardize_op, x);
  require(x.shape()[-1] > 0, "standardize: the rows of ", x.shape(), " are empty");
  Tensor y = Tensor::like(x.value()), rstd(x.shape().without(-1), x.dtype(), x.device());
  backend(x.device()).standardize_rows(epsilon, x.value(), y, rstd);
  return record(standardize_op, y,
                from(x, [=](const Var& g, const Var& y) { return standardize_slope(x, y, rstd, epsilon, g); }));
}

Var layer_norm(const Var& x, const Var& gamma, const Var& beta, double epsilon, Activation activation) {
  check_floating(layer_norm_op, x);
  const int64_t width = x.shape()[-1];
  require(width > 0, "layer_norm: the rows of ", x.shape(), " are empty");
  for (const Var* v : {&gamma, &beta})
    require(v->shape() == Shape{width} && v->dtype() == x.dtype() && v->device() == x.device(),
            "layer_norm: gamma and beta must be ", x.dtype(), " (", width, ") on ", x.device(), ", not ", v->dtype(),
            " ", v->shape(), " on ", v->device());
  const bool relu = activation.op == Unary::Relu;
  const DType wide = x.dtype() == DType::bf16 ? DType::f32 : x.dtype();
  Tensor y = Tensor::like(x.value()), moments(x.shape().with(-1, 2), wide, x.device());
  backend(x.device()).layer_norm_rows(epsilon, relu, x.value(), gamma.value(), beta.value(), y, moments);
  const FusedGradients fused(LayerNormRule{x, gamma, beta, epsilon, moments, relu ? Var(y) : Var()});
  const Var result =
      record(layer_norm_op, y, from(x, fused.part(0)), from(gamma, fused.part(1)), from(beta, fused.part(2)));
  return relu ? result : activate(result, activation);
}

Var cross_entropy(const Var& logits, const Var& targets) {
  check_floating(cross_entropy_op, logits);
  require(logits.shape().rank() == 2, "cross_entropy: logits must be (n, classes), not ", logits.shape());
  require(targets.shape() == logits.shape().without(1), "cross_entropy: ", targets.shape(), " targets for logits ",
          logits.shape());
  check_one_device(cross_entropy_op, logits.device(), targets.device());
  Tensor losses(targets.shape(), logits.dtype(), logits.device());
  backend(logits.device()).cross_entropy_rows(logits.value(), classes_of(logits, targets), losses);
  return record(cross_entropy_op, losses,
                from(logits, [=](const Var& g) { return cross_entropy_slope(logits, targets, g); }), data(targets));
}

}  // namespace weft
