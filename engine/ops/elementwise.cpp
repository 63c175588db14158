// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/ops/elementwise.h"

#include <algorithm>
#include <array>

#include "weft/engine/kernels/backend.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/tape/checks.h"
#include "weft/engine/tape/record.h"

namespace weft {
namespace {

// f, df and ddf of scalar_ops.h as ops. `slope` is the pullback of a unary op, and `curvature` the pullback of `slope`;
// both are linear in the cotangents. Third derivatives are an error.
const Op slope_op{"slope", {{"gelu", {{2, 3}}, [](auto x) { return gelu(x[0]); }}}, Algebra::linear_after_first};
const Op curvature_op{"curvature",
                      {
                          {"gelu", {{2, 3}}, [](auto x) { return gelu(x[0]); }},
                      },
                      Algebra::linear_after_first};

bool all_zero(const Tensor& x) {
  const std::vector<double> values = x.values();
  return std::all_of(values.begin(), values.end(), [](double v) { return v == 0; });
}

Var curvature(Unary kind, Scalars scalars, const Var& s, const Var& g, const Var& h) {
  Tensor y = Tensor::like(g.value());
  backend(g.device()).curvature(kind, scalars, s.value(), g.value(), h.value(), y);
  return record(curvature_op, y,
                from(s,
                     [=](const Var& k) -> Var {  // collectives that no gradient reached give zeros
                       require(all_zero(g.value()) || all_zero(h.value()) || all_zero(k.value()),
                               "third derivatives of elementwise ops are not provided");
                       return {};
                     }),
                from(g, [=](const Var& k) { return curvature(kind, scalars, s, k, h); }),
                from(h, [=](const Var& k) { return curvature(kind, scalars, s, g, k); }));
}

Var slope(Unary kind, Scalars scalars, const Var& s, const Var& g) {
  Tensor y = memory_for_result(g, g.shape());
  backend(g.device()).slope(kind, scalars, s.value(), g.value(), y);
  return record(slope_op, y, from(s, [=](const Var& h) { return curvature(kind, scalars, s, g, h); }),
                from(g, [=](const Var& h) { return slope(kind, scalars, s, h); }));
}

}  // namespace

Var record_unary(const Op& op, Unary kind, Scalars scalars, const Var& x, const Tensor& y) {
  switch (saves(kind)) {
    case Saves::input: return record(op, y, from(x, [=](const Var& g) { return slope(kind, scalars, x, g); }));
    case Saves::output:
      return record(op, y, from(x, [=](const Var& g, const Var& s) { return slope(kind, scalars, s, g); }));
    case Saves::nothing: break;
  }
  return record(op, y, from(x, [=](const Var& g) {
                  return kind != Unary::Affine ? Var() : scalars.a == 1 ? g : affine(g, scalars.a, 0);
                }));
}

namespace {

Var unary(const Op& op, Unary kind, const Var& x, Scalars scalars = {}) {
  check_floating(op, x);
  Tensor y = Tensor::like(x.value());
  backend(x.device()).unary(kind, scalars, x.value(), y);
  return record_unary(op, kind, scalars, x, y);
}

Tensor binary(const Op& op, Binary kind, const Var& a, const Var& b) {
  check_floating(op, a);
  check_same(op, a, b);
  Tensor y = Tensor::like(a.value());
  backend(a.device()).binary(kind, a.value(), b.value(), y);
  return y;
}

Tensor compare(Comparison kind, const char* name, const Tensor& a, const Tensor& b) {
  require(a.shape() == b.shape() && a.dtype() == b.dtype() && a.device() == b.device(), name, ": operands differ, ",
          a.dtype(), " ", a.shape(), " and ", b.dtype(), " ", b.shape());
  Tensor y(a.shape(), DType::u8, a.device());
  backend(a.device()).compare(kind, a, b, y);
  return y;
}

Tensor along(const Op& op, Binary kind, const Var& x, const Var& v, int axis) {
  check_floating(op, x);
  require(v.shape().rank() == 1 && v.shape()[0] == x.shape()[axis] && v.dtype() == x.dtype(), op.name, ": axis ", axis,
          " of ", x.dtype(), " ", x.shape(), " needs a vector of its extent, not ", v.dtype(), " ", v.shape());
  check_one_device(op, x.device(), v.device());
  Tensor y = Tensor::like(x.value());
  backend(x.device()).binary_along(kind, x.value(), v.value(), Along(x.shape(), axis), y);
  return y;
}

// Samples: one input, two inputs, a matrix with a vector along its rows or columns.
Sample one(Var (*f)(const Var&), double low = -1, double high = 1, std::string label = "") {
  return {std::move(label), {{2, 3}}, [f](auto x) { return f(x[0]); }, low, high};
}
Sample two(Var (*f)(const Var&, const Var&), double low = -1, double high = 1) {
  return {"", {{2, 3}, {2, 3}}, [f](auto x) { return f(x[0], x[1]); }, low, high};
}
Var alternating(std::span<const Var> x) {
  return where(Tensor::from({2, 3}, {1, 0, 0, 1, 1, 0}, DType::u8, x[0].device()), x[0], x[1]);
}
std::vector<Sample> with_vector(Var (*f)(const Var&, const Var&, int), double low = -1, double high = 1) {
  return {{"row", {{4, 3}, {3}}, [f](auto x) { return f(x[0], x[1], -1); }, low, high},
          {"column", {{4, 3}, {4}}, [f](auto x) { return f(x[0], x[1], 0); }, low, high},
          {"middle axis", {{2, 4, 3}, {4}}, [f](auto x) { return f(x[0], x[1], 1); }, low, high}};
}

// One sample a line.
// clang-format off
const Op neg_op{"neg", {one(neg)}, Algebra::linear};
const Op abs_op{"abs", {one(abs, 0.1, 1, "positive"), one(abs, -1, -0.1, "negative")}};
const Op exp_op{"exp", {one(exp)}};
const Op expm1_op{"expm1", {one(expm1)}};
const Op log_op{"log", {one(log, 0.5, 2)}};
const Op log1p_op{"log1p", {one(log1p, -0.5, 2)}};
const Op sqrt_op{"sqrt", {one(sqrt, 0.5, 2)}};
const Op rsqrt_op{"rsqrt", {one(rsqrt, 0.5, 2)}};
const Op square_op{"square", {one(square)}};
const Op reciprocal_op{"reciprocal", {one(reciprocal, 0.5, 2)}};
const Op pow_op{"pow", {
    {"2.5", {{2, 3}}, [](auto x) { return pow(x[0], 2.5); }, 0.5, 2},
    {"3 of any sign", {{2, 3}}, [](auto x) { return pow(x[0], 3); }},
    {"1", {{2, 3}}, [](auto x) { return pow(x[0], 1); }},
    {"-1", {{2, 3}}, [](auto x) { return pow(x[0], -1); }, 0.5, 2},
}};
const Op sin_op{"sin", {one(sin, -4, 4)}};
const Op cos_op{"cos", {one(cos, -4, 4)}};
const Op tanh_op{"tanh", {one(tanh)}};
const Op sigmoid_op{"sigmoid", {one(sigmoid, -3, 3)}};
const Op relu_op{"relu", {one(relu, 0.1, 1, "on"), one(relu, -1, -0.1, "off")}};
const Op leaky_relu_op{"leaky_relu", {
    {"on", {{2, 3}}, [](auto x) { return leaky_relu(x[0], 0.2); }, 0.1, 1},
    {"off", {{2, 3}}, [](auto x) { return leaky_relu(x[0], 0.2); }, -1, -0.1},
}};
const Op gelu_op{"gelu", {one(gelu, -3, 3)}};
const Op gelu_tanh_op{"gelu_tanh", {one(gelu_tanh, -3, 3)}};
const Op silu_op{"silu", {one(silu, -3, 3)}};
const Op softplus_op{"softplus", {one(softplus, -3, 3)}};
const Op clamp_op{"clamp", {
    {"inside", {{2, 3}}, [](auto x) { return clamp(x[0], -2, 2); }},
    {"outside", {{2, 3}}, [](auto x) { return clamp(x[0], -2, 0.5); }, 0.6, 2},
}};
const Op round_op{"round", {one(round, 0.6, 1.4)}};
const Op scale_op{"scale", {{"", {{2, 3}}, [](auto x) { return 2.5 * x[0]; }}}, Algebra::linear};
const Op affine_op{"affine", {{"", {{2, 3}}, [](auto x) { return 2.5 * x[0] - 1; }}}};

const Op sub_op{"sub", {two(operator-)}, Algebra::linear};
const Op mul_op{"mul", {
    two(operator*),
    {"by itself", {{2, 3}}, [](auto x) { return x[0] * x[0]; }},
}, Algebra::multilinear};
const Op div_op{"div", {two(operator/, 0.5, 2)}, Algebra::linear_in_first};
const Op power_op{"power", {two(pow, 0.5, 2)}};
const Op power_slope_op{"slope of power", power_op.samples};
const Op power_curvature_op{"curvature of power", power_op.samples};
const Op minimum_op{"minimum", {two(minimum)}};
const Op maximum_op{"maximum", {two(maximum)}};

const Op add_along_op{"add_along", with_vector(add_along), Algebra::linear};
const Op sub_along_op{"sub_along", with_vector(sub_along), Algebra::linear};
const Op mul_along_op{"mul_along", with_vector(mul_along), Algebra::multilinear};
const Op div_along_op{"div_along", with_vector(div_along, 0.5, 2), Algebra::linear_in_first};

const Op where_op{"where", {{"", {{2, 3}, {2, 3}}, alternating}}, Algebra::linear};
const Op cast_op{"cast", {{"f64 to f64", {{2, 3}}, [](auto x) { return cast(x[0], DType::f64); }}}, Algebra::linear};
// Its gradient is the surrogate's; finite differences can judge it only where value and surrogate differ by a constant.
const Op straight_through_op{"straight_through", {
    {"", {{2, 3}}, [](auto x) { return straight_through(x[0], x[0] + 1); }},
}, Algebra::linear};
// clang-format on

}  // namespace

Var neg(const Var& x) { return unary(neg_op, Unary::Affine, x, {-1, 0}); }
Var abs(const Var& x) { return unary(abs_op, Unary::Abs, x); }
Var exp(const Var& x) { return unary(exp_op, Unary::Exp, x); }
Var expm1(const Var& x) { return unary(expm1_op, Unary::Expm1, x); }
Var log(const Var& x) { return unary(log_op, Unary::Log, x); }
Var log1p(const Var& x) { return unary(log1p_op, Unary::Log1p, x); }
Var sqrt(const Var& x) { return unary(sqrt_op, Unary::Sqrt, x); }
Var rsqrt(const Var& x) { return unary(rsqrt_op, Unary::Rsqrt, x); }
Var square(const Var& x) { return unary(square_op, Unary::Square, x); }
Var reciprocal(const Var& x) { return unary(reciprocal_op, Unary::Reciprocal, x); }
Var pow(const Var& x, double exponent) { return unary(pow_op, Unary::Pow, x, {exponent, 0}); }
Var sin(const Var& x) { return unary(sin_op, Unary::Sin, x); }
Var cos(const Var& x) { return unary(cos_op, Unary::Cos, x); }
Var tanh(const Var& x) { return unary(tanh_op, Unary::Tanh, x); }
Var sigmoid(const Var& x) { return unary(sigmoid_op, Unary::Sigmoid, x); }
Var relu(const Var& x) { return unary(relu_op, Unary::Relu, x); }
Var leaky_relu(const Var& x, double slope) { return unary(leaky_relu_op, Unary::LeakyRelu, x, {slope, 0}); }
Var gelu(const Var& x) { return unary(gelu_op, Unary::Gelu, x); }
Var gelu_tanh(const Var& x) { return unary(gelu_tanh_op, Unary::GeluTanh, x); }
Var silu(const Var& x) { return unary(silu_op, Unary::Silu, x); }
Var softplus(const Var& x) { return unary(softplus_op, Unary::Softplus, x); }
Var clamp(const Var& x, double low, double high) {
  require(low <= high, "clamp: low ", low, " is above high ", high);
  return unary(clamp_op, Unary::Clamp, x, {low, high});
}
Var round(const Var& x) { return unary(round_op, Unary::Round, x); }
// An op with a shift is not linear: the shift of a Partial value would be added once per rank.
Var affine(const Var& x, double scale, double shift) {
  if (scale != 1 || shift != 0) return unary(shift == 0 ? scale_op : affine_op, Unary::Affine, x, {scale, shift});
  check_floating(scale_op, x);
  return record_unary(scale_op, Unary::Affine, {1, 0}, x, x.value());  // the same values need no memory of their own
}

Var operator-(const Var& a, const Var& b) {
  return record(sub_op, binary(sub_op, Binary::Subtract, a, b), from(a, [](const Var& g) { return g; }),
                from(b, [](const Var& g) { return -g; }));
}
Var operator*(const Var& a, const Var& b) {
  return record(mul_op, binary(mul_op, Binary::Multiply, a, b), from(a, [=](const Var& g) { return g * b; }),
                from(b, [=](const Var& g) { return g * a; }));
}
Var operator/(const Var& a, const Var& b) {
  return record(div_op, binary(div_op, Binary::Divide, a, b), from(a, [=](const Var& g) { return g / b; }),
                from(b, [=](const Var& g, const Var& y) { return -(g * y / b); }));
}
// The derivatives of pow(a, b), `wrt_b` of them with respect to b and the others with respect to a. At a = 0 the first
// and second derivatives are limits; the third is computed from its formula.
static Var third_of_power(int wrt_b, const Var& a, const Var& b) {
  switch (wrt_b) {
    case 0: return b * (b - 1) * (b - 2) * pow(a, b - 3);
    case 1: return pow(a, b - 2) * (2 * b - 1 + b * (b - 1) * log(a));
    case 2: return pow(a, b - 1) * log(a) * (2 + b * log(a));
    default: return pow(a, b) * log(a) * square(log(a));
  }
}
static Var curvature_of_power(int wrt_b, const Var& a, const Var& b) {
  const Binary kind = std::array{Binary::PowerByBaseTwice, Binary::PowerByBoth, Binary::PowerByExponentTwice}[wrt_b];
  return record(power_curvature_op, binary(power_curvature_op, kind, a, b),
                from(a, [=](const Var& g) { return g * third_of_power(wrt_b, a, b); }),
                from(b, [=](const Var& g) { return g * third_of_power(wrt_b + 1, a, b); }));
}
static Var slope_of_power(int wrt_b, const Var& a, const Var& b) {
  const Binary kind = wrt_b == 0 ? Binary::PowerByBase : Binary::PowerByExponent;
  return record(power_slope_op, binary(power_slope_op, kind, a, b),
                from(a, [=](const Var& g) { return g * curvature_of_power(wrt_b, a, b); }),
                from(b, [=](const Var& g) { return g * curvature_of_power(wrt_b + 1, a, b); }));
}
Var pow(const Var& a, const Var& b) {
  return record(power_op, binary(power_op, Binary::Power, a, b),
                from(a, [=](const Var& g) { return g * slope_of_power(0, a, b); }),
                from(b, [=](const Var& g) { return g * slope_of_power(1, a, b); }));
}
Var minimum(const Var& a, const Var& b) {
  const auto share = [](const Var& x, const Var& y) {
    return record(minimum_op, binary(minimum_op, Binary::MaximumShare, y, x), data(x), data(y));
  };
  return record(minimum_op, binary(minimum_op, Binary::Minimum, a, b),
                from(a, [=](const Var& g) { return g * share(a, b); }),
                from(b, [=](const Var& g) { return g * share(b, a); }));
}
Var maximum(const Var& a, const Var& b) {
  const auto share = [](const Var& x, const Var& y) {
    return record(maximum_op, binary(maximum_op, Binary::MaximumShare, x, y), data(x), data(y));
  };
  return record(maximum_op, binary(maximum_op, Binary::Maximum, a, b),
                from(a, [=](const Var& g) { return g * share(a, b); }),
                from(b, [=](const Var& g) { return g * share(b, a); }));
}

Var add_along(const Var& x, const Var& v, int axis) {
  return record(add_along_op, along(add_along_op, Binary::Add, x, v, axis), from(x, [](const Var& g) { return g; }),
                from(v, [=](const Var& g) { return sum_outside(g, axis); }));
}
Var sub_along(const Var& x, const Var& v, int axis) {
  return record(sub_along_op, along(sub_along_op, Binary::Subtract, x, v, axis),
                from(x, [](const Var& g) { return g; }), from(v, [=](const Var& g) { return -sum_outside(g, axis); }));
}
Var mul_along(const Var& x, const Var& v, int axis) {
  return record(mul_along_op, along(mul_along_op, Binary::Multiply, x, v, axis),
                from(x, [=](const Var& g) { return mul_along(g, v, axis); }),
                from(v, [=](const Var& g) { return sum_outside(g * x, axis); }));
}
Var div_along(const Var& x, const Var& v, int axis) {
  return record(div_along_op, along(div_along_op, Binary::Divide, x, v, axis),
                from(x, [=](const Var& g) { return div_along(g, v, axis); }),
                from(v, [=](const Var& g, const Var& y) { return -(sum_outside(g * y, axis) / v); }));
}

Tensor equal(const Tensor& a, const Tensor& b) { return compare(Comparison::Equal, "equal", a, b); }
Tensor not_equal(const Tensor& a, const Tensor& b) { return compare(Comparison::NotEqual, "not_equal", a, b); }
Tensor less(const Tensor& a, const Tensor& b) { return compare(Comparison::Less, "less", a, b); }
Tensor less_equal(const Tensor& a, const Tensor& b) { return compare(Comparison::LessEqual, "less_equal", a, b); }

Var where(const Var& mask, const Var& a, const Var& b) {
  check_same(where_op, a, b);
  require(mask.dtype() == DType::u8 && mask.shape() == a.shape() && mask.device() == a.device(),
          "where: the mask must be u8 ", a.shape(), " on ", a.device(), ", not ", mask.dtype(), " ", mask.shape(),
          " on ", mask.device());
  Tensor y = Tensor::like(a.value());
  backend(a.device()).where(mask.value(), a.value(), b.value(), y);
  const auto none = [](const Var& g) { return constant_like(Tensor::zeros(g.shape(), g.dtype(), g.device()), g); };
  return record(where_op, y, from(a, [=](const Var& g) { return where(mask, g, none(g)); }),
                from(b, [=](const Var& g) { return where(mask, none(g), g); }), data(mask));
}

Var cast(const Var& x, DType dtype) {
  check_floating(cast_op, x);
  require(is_floating(dtype), "cast: gradients need a floating type, not ", dtype, "; use value().to(", dtype, ")");
  return record(cast_op, x.value().to(dtype),
                from(x, [from_type = x.dtype()](const Var& g) { return cast(g, from_type); }));
}
Var straight_through(const Var& value, const Var& surrogate) {
  check_same(straight_through_op, value, surrogate);
  return record(straight_through_op, value.value(), from(value, [](const Var&) { return Var(); }),
                from(surrogate, [](const Var& g) { return g; }));
}

}  // namespace weft
