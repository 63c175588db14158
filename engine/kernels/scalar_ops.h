// SPDX-License-Identifier: Apache-2.0
#pragma once
// Every elementwise formula, written once and compiled for each device.
//
// A unary op has f(x) and two derivatives, df(s) = dy/dx and ddf(s) = d(df)/ds. s is the tensor that it saves, its
// input x or its output y. Constants of the op (a slope, an exponent) are the members a and b. To add one: write the
// struct, name it in WEFT_UNARY_OPS, and give it an Op with samples in ops/elementwise.cpp.
//
// Rules at kinks: the derivative of abs, relu and round is 0 at the kink, that of leaky_relu is its slope, that of
// clamp is 1 on the border. maximum and minimum give half of the gradient to each of two equal arguments. The
// derivatives of a^b at a = 0 are the limits from a > 0; at a = b = 0 there are no limits, and the derivatives are 0.
// All ops propagate NaN.
#include <cmath>

#include "weft/engine/kernels/scalar_kinds.h"
#include "weft/engine/maths/maths.h"
#include "weft/engine/tensor/error.h"

namespace weft {

enum class Saves { nothing, input, output };

struct Affine : Scalars {  // a x + b
  static constexpr Saves saves = Saves::nothing;
  template <class T> WEFT_HD T f(T x) const { return T(a) * x + T(b); }
  template <class T> WEFT_HD T df(T) const { return T(a); }
  template <class T> WEFT_HD T ddf(T) const { return T(0); }
};
struct Abs : Scalars {
  static constexpr Saves saves = Saves::input;
  template <class T> WEFT_HD T f(T x) const { return x < T(0) ? -x : x == T(0) ? T(0) : x; }
  template <class T> WEFT_HD T df(T x) const { return x > T(0) ? T(1) : x < T(0) ? T(-1) : x * T(0); }
  template <class T> WEFT_HD T ddf(T) const { return T(0); }
};
struct Exp : Scalars {
  static constexpr Saves saves = Saves::output;
  template <class T> WEFT_HD T f(T x) const { return maths::exp(x); }
  template <class T> WEFT_HD T df(T y) const { return y; }
  template <class T> WEFT_HD T ddf(T) const { return T(1); }
};
struct Expm1 : Scalars {
  static constexpr Saves saves = Saves::output;
  template <class T> WEFT_HD T f(T x) const { return maths::expm1(x); }
  template <class T> WEFT_HD T df(T y) const { return y + T(1); }
  template <class T> WEFT_HD T ddf(T) const { return T(1); }
};
struct Log : Scalars {
  static constexpr Saves saves = Saves::input;
  template <class T> WEFT_HD T f(T x) const { return maths::log(x); }
  template <class T> WEFT_HD T df(T x) const { return T(1) / x; }
  template <class T> WEFT_HD T ddf(T x) const { return T(-1) / (x * x); }
};
struct Log1p : Scalars {
  static constexpr Saves saves = Saves::input;
  template <class T> WEFT_HD T f(T x) const { return maths::log1p(x); }
  template <class T> WEFT_HD T df(T x) const { return T(1) / (T(1) + x); }
  template <class T> WEFT_HD T ddf(T x) const { return T(-1) / ((T(1) + x) * (T(1) + x)); }
};
struct Sqrt : Scalars {
  static constexpr Saves saves = Saves::output;
  template <class T> WEFT_HD T f(T x) const { return maths::sqrt(x); }
  template <class T> WEFT_HD T df(T y) const { return T(0.5) / y; }
  template <class T> WEFT_HD T ddf(T y) const { return T(-0.5) / (y * y); }
};
struct Rsqrt : Scalars {  // 1 / sqrt(x)
  static constexpr Saves saves = Saves::output;
  template <class T> WEFT_HD T f(T x) const { return T(1) / maths::sqrt(x); }
  template <class T> WEFT_HD T df(T y) const { return T(-0.5) * y * y * y; }
  template <class T> WEFT_HD T ddf(T y) const { return T(-1.5) * y * y; }
};
struct Square : Scalars {
  static constexpr Saves saves = Saves::input;
  template <class T> WEFT_HD T f(T x) const { return x * x; }
  template <class T> WEFT_HD T df(T x) const { return T(2) * x; }
  template <class T> WEFT_HD T ddf(T) const { return T(2); }
};
struct Reciprocal : Scalars {
  static constexpr Saves saves = Saves::output;
  template <class T> WEFT_HD T f(T x) const { return T(1) / x; }
  template <class T> WEFT_HD T df(T y) const { return -y * y; }
  template <class T> WEFT_HD T ddf(T y) const { return T(-2) * y; }
};
struct Pow : Scalars {  // x^a; for a = 0 or 1 derivatives that vanish are exact zeros, even at x = 0
  static constexpr Saves saves = Saves::input;
  template <class T> WEFT_HD T f(T x) const { return maths::pow(x, T(a)); }
  template <class T> WEFT_HD T df(T x) const { return a == 0 ? T(0) : T(a) * maths::pow(x, T(a - 1)); }
  template <class T> WEFT_HD T ddf(T x) const {
    return a == 0 || a == 1 ? T(0) : T(a * (a - 1)) * maths::pow(x, T(a - 2));
  }
};
struct Sin : Scalars {
  static constexpr Saves saves = Saves::input;
  template <class T> WEFT_HD T f(T x) const { return maths::sin(x); }
  template <class T> WEFT_HD T df(T x) const { return maths::cos(x); }
  template <class T> WEFT_HD T ddf(T x) const { return -maths::sin(x); }
};
struct Cos : Scalars {
  static constexpr Saves saves = Saves::input;
  template <class T> WEFT_HD T f(T x) const { return maths::cos(x); }
  template <class T> WEFT_HD T df(T x) const { return -maths::sin(x); }
  template <class T> WEFT_HD T ddf(T x) const { return -maths::cos(x); }
};
struct Tanh : Scalars {
  static constexpr Saves saves = Saves::output;
  template <class T> WEFT_HD T f(T x) const { return maths::tanh(x); }
  template <class T> WEFT_HD T df(T y) const { return T(1) - y * y; }
  template <class T> WEFT_HD T ddf(T y) const { return T(-2) * y; }
};
struct Sigmoid : Scalars {
  static constexpr Saves saves = Saves::output;
  template <class T> WEFT_HD static T of(T x) { return T(1) / (T(1) + maths::exp(-x)); }
  template <class T> WEFT_HD T f(T x) const { return of(x); }
  template <class T> WEFT_HD T df(T y) const { return y * (T(1) - y); }
  template <class T> WEFT_HD T ddf(T y) const { return T(1) - T(2) * y; }
};
struct Relu : Scalars {
  static constexpr Saves saves = Saves::output;
  template <class T> WEFT_HD T f(T x) const { return x < T(0) ? T(0) : x; }
  template <class T> WEFT_HD T df(T y) const { return y > T(0) ? T(1) : y * T(0); }
  template <class T> WEFT_HD T ddf(T) const { return T(0); }
};
struct LeakyRelu : Scalars {  // slope a below zero
  static constexpr Saves saves = Saves::input;
  template <class T> WEFT_HD T f(T x) const { return x > T(0) ? x : T(a) * x; }
  template <class T> WEFT_HD T df(T x) const { return x > T(0) ? T(1) : T(a); }
  template <class T> WEFT_HD T ddf(T) const { return T(0); }
};
struct Gelu : Scalars {  // x times the normal distribution function of x
  static constexpr Saves saves = Saves::input;
  template <class T> WEFT_HD static T below(T x) { return T(0.5) * (T(1) + maths::erf(x * T(0.70710678118654752))); }
  template <class T> WEFT_HD static T density(T x) { return T(0.39894228040143268) * maths::exp(T(-0.5) * x * x); }
  template <class T> WEFT_HD T f(T x) const { return x * below(x); }
  template <class T> WEFT_HD T df(T x) const { return below(x) + x * density(x); }
  template <class T> WEFT_HD T ddf(T x) const { return density(x) * (T(2) - x * x); }
};
struct GeluTanh : Scalars {  // the common approximation: x (1 + tanh u) / 2 with u = c (x + k x^3)
  static constexpr Saves saves = Saves::input;
  static constexpr double c = 0.79788456080286536, k = 0.044715;
  template <class T> WEFT_HD static T tanh_u(T x) { return maths::tanh(T(c) * (x + T(k) * x * x * x)); }
  template <class T> WEFT_HD static T du(T x) { return T(c) * (T(1) + T(3 * k) * x * x); }
  template <class T> WEFT_HD T f(T x) const { return T(0.5) * x * (T(1) + tanh_u(x)); }
  template <class T> WEFT_HD T df(T x) const {
    const T t = tanh_u(x);
    return T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * du(x);
  }
  template <class T> WEFT_HD T ddf(T x) const {
    const T t = tanh_u(x), d = du(x), dd = T(6 * k * c) * x;
    return (T(1) - t * t) * (d + T(0.5) * x * (dd - T(2) * t * d * d));
  }
};
struct Silu : Scalars {  // x sigmoid(x)
  static constexpr Saves saves = Saves::input;
  template <class T> WEFT_HD T f(T x) const { return x * Sigmoid::of(x); }
  template <class T> WEFT_HD T df(T x) const {
    const T s = Sigmoid::of(x);
    return s * (T(1) + x * (T(1) - s));
  }
  template <class T> WEFT_HD T ddf(T x) const {
    const T s = Sigmoid::of(x);
    return s * (T(1) - s) * (T(2) + x * (T(1) - T(2) * s));
  }
};
struct Softplus : Scalars {  // log(1 + e^x)
  static constexpr Saves saves = Saves::input;
  template <class T> WEFT_HD T f(T x) const {
    const T size = x < T(0) ? -x : x;
    return (x < T(0) ? T(0) : x) + maths::log1p_of_fraction(maths::exp(-size));
  }
  template <class T> WEFT_HD T df(T x) const { return Sigmoid::of(x); }
  template <class T> WEFT_HD T ddf(T x) const {
    const T s = Sigmoid::of(x);
    return s * (T(1) - s);
  }
};
struct Clamp : Scalars {  // into [a, b]
  static constexpr Saves saves = Saves::input;
  template <class T> WEFT_HD T f(T x) const { return x < T(a) ? T(a) : x > T(b) ? T(b) : x; }
  template <class T> WEFT_HD T df(T x) const { return x < T(a) || x > T(b) ? T(0) : T(1); }
  template <class T> WEFT_HD T ddf(T) const { return T(0); }
};
struct Round : Scalars {  // to the nearest integer, halves to even; its derivative is zero
  static constexpr Saves saves = Saves::nothing;
  template <class T> WEFT_HD T f(T x) const { return std::rint(x); }
  template <class T> WEFT_HD T df(T) const { return T(0); }
  template <class T> WEFT_HD T ddf(T) const { return T(0); }
};

struct Add {
  template <class T> WEFT_HD T operator()(T a, T b) const { return a + b; }
};
struct Subtract {
  template <class T> WEFT_HD T operator()(T a, T b) const { return a - b; }
};
struct Multiply {
  template <class T> WEFT_HD T operator()(T a, T b) const { return a * b; }
};
struct Divide {
  template <class T> WEFT_HD T operator()(T a, T b) const { return a / b; }
};
struct Power {
  template <class T> WEFT_HD T operator()(T a, T b) const { return maths::pow(a, b); }
};
// The first derivatives of a^b with respect to a and b, and the second: a twice, both, b twice. For a < 0 there are no
// derivatives with respect to b.
struct PowerByBase {
  template <class T> WEFT_HD T operator()(T a, T b) const { return b == T(0) ? T(0) : b * maths::pow(a, b - T(1)); }
};
struct PowerByExponent {
  // A power of a times a polynomial of log(a). Where the power is zero, so is the limit of the product.
  template <class T> WEFT_HD static T times_log(T power, T polynomial, T a, T b) {
    return a >= T(0) && (power == T(0) || (a == T(0) && b == T(0))) ? T(0) : power * polynomial;
  }
  template <class T> WEFT_HD T operator()(T a, T b) const { return times_log(maths::pow(a, b), maths::log(a), a, b); }
};
struct PowerByBaseTwice {
  template <class T> WEFT_HD T operator()(T a, T b) const {
    return b == T(0) || b == T(1) ? T(0) : b * (b - T(1)) * maths::pow(a, b - T(2));
  }
};
struct PowerByBoth {
  template <class T> WEFT_HD T operator()(T a, T b) const {
    return PowerByExponent::times_log(maths::pow(a, b - T(1)), T(1) + b * maths::log(a), a, b);
  }
};
struct PowerByExponentTwice {
  template <class T> WEFT_HD T operator()(T a, T b) const {
    const T log_a = maths::log(a);
    return PowerByExponent::times_log(maths::pow(a, b), log_a * log_a, a, b);
  }
};
struct Minimum {
  template <class T> WEFT_HD T operator()(T a, T b) const { return a < b || a != a ? a : b; }
};
struct Maximum {
  template <class T> WEFT_HD T operator()(T a, T b) const { return a > b || a != a ? a : b; }
};
// The part of the cotangent of maximum(a, b) that a gets; swap the arguments for minimum. NaN if a or b is.
struct MaximumShare {
  template <class T> WEFT_HD T operator()(T a, T b) const {
    return a > b ? T(1) : a < b ? T(0) : a == b ? T(0.5) : a + b;
  }
};

struct Equal {
  template <class T> WEFT_HD bool operator()(T a, T b) const { return a == b; }
};
struct NotEqual {
  template <class T> WEFT_HD bool operator()(T a, T b) const { return a != b; }
};
struct Less {
  template <class T> WEFT_HD bool operator()(T a, T b) const { return a < b; }
};
struct LessEqual {
  template <class T> WEFT_HD bool operator()(T a, T b) const { return a <= b; }
};

// clang-format off
#define WEFT_UNARY_OPS(X)                                                                                        \
  X(Affine) X(Abs) X(Exp) X(Expm1) X(Log) X(Log1p) X(Sqrt) X(Rsqrt) X(Square) X(Reciprocal) X(Pow) X(Sin) X(Cos) \
  X(Tanh) X(Sigmoid) X(Relu) X(LeakyRelu) X(Gelu) X(GeluTanh) X(Silu) X(Softplus) X(Clamp) X(Round)
#define WEFT_BINARY_OPS(X)                                                                                       \
  X(Add) X(Subtract) X(Multiply) X(Divide) X(Power) X(PowerByBase) X(PowerByExponent) X(PowerByBaseTwice)        \
  X(PowerByBoth) X(PowerByExponentTwice) X(Minimum) X(Maximum) X(MaximumShare)
// clang-format on
#define WEFT_COMPARISONS(X) X(Equal) X(NotEqual) X(Less) X(LessEqual)

// The Backend interface uses these names; `with` calls a function with the struct of a name.
#define WEFT_NAME(Name) Name,
enum class Unary : uint8_t { WEFT_UNARY_OPS(WEFT_NAME) };
enum class Binary : uint8_t { WEFT_BINARY_OPS(WEFT_NAME) };
enum class Comparison : uint8_t { WEFT_COMPARISONS(WEFT_NAME) };
#undef WEFT_NAME
static_assert(Unary::Affine == Unary{});  // as Activation has it

template <class F> void with(Unary op, Scalars scalars, F&& run) {
#define WEFT_CASE(Name) \
  case Unary::Name: return run(Name{scalars});
  switch (op) { WEFT_UNARY_OPS(WEFT_CASE) }
#undef WEFT_CASE
}
template <class F> void with(Binary op, F&& run) {
#define WEFT_CASE(Name) \
  case Binary::Name: return run(Name{});
  switch (op) { WEFT_BINARY_OPS(WEFT_CASE) }
#undef WEFT_CASE
}
template <class F> void with(Comparison op, F&& run) {
#define WEFT_CASE(Name) \
  case Comparison::Name: return run(Name{});
  switch (op) { WEFT_COMPARISONS(WEFT_CASE) }
#undef WEFT_CASE
}

inline Saves saves(Unary op) {
  Saves result = Saves::nothing;
  with(op, {}, [&]<class O>(const O&) { result = O::saves; });
  return result;
}

}  // namespace weft
