// SPDX-License-Identifier: Apache-2.0
#pragma once
// Elementwise ops. Two operands must have the same shape and dtype; there is no implicit broadcasting. The rules at
// kinks are in scalar_ops.h.
#include "weft/engine/kernels/scalar_kinds.h"
#include "weft/engine/tape/add.h"
#include "weft/engine/tape/tape.h"

namespace weft {

Var neg(const Var& x);
Var abs(const Var& x);
Var exp(const Var& x);
Var expm1(const Var& x);
Var log(const Var& x);
Var log1p(const Var& x);
Var sqrt(const Var& x);
Var rsqrt(const Var& x);
Var square(const Var& x);
Var reciprocal(const Var& x);
Var pow(const Var& x, double exponent);
Var sin(const Var& x);
Var cos(const Var& x);
Var tanh(const Var& x);
Var sigmoid(const Var& x);
Var relu(const Var& x);
Var leaky_relu(const Var& x, double slope = 0.01);
Var gelu(const Var& x);
Var gelu_tanh(const Var& x);
Var silu(const Var& x);
Var softplus(const Var& x);
Var clamp(const Var& x, double low, double high);
Var round(const Var& x);  // its derivative is zero; see straight_through
Var affine(const Var& x, double scale, double shift);

Var operator-(const Var& a, const Var& b);
Var operator*(const Var& a, const Var& b);
Var operator/(const Var& a, const Var& b);
Var pow(const Var& a, const Var& b);
Var minimum(const Var& a, const Var& b);
Var maximum(const Var& a, const Var& b);

inline Var operator-(const Var& x) { return neg(x); }
inline Var operator+(const Var& x, double s) { return affine(x, 1, s); }
inline Var operator-(const Var& x, double s) { return affine(x, 1, -s); }
inline Var operator*(const Var& x, double s) { return affine(x, s, 0); }
inline Var operator/(const Var& x, double s) { return affine(x, 1 / s, 0); }
inline Var operator+(double s, const Var& x) { return affine(x, 1, s); }
inline Var operator-(double s, const Var& x) { return affine(x, -1, s); }
inline Var operator*(double s, const Var& x) { return affine(x, s, 0); }
inline Var operator/(double s, const Var& x) { return affine(reciprocal(x), s, 0); }

// The vector v has one value per index of x's `axis`: axis -1 adds a row to every row of a matrix, axis 0 a column to
// every column.
Var add_along(const Var& x, const Var& v, int axis);
Var sub_along(const Var& x, const Var& v, int axis);
Var mul_along(const Var& x, const Var& v, int axis);
Var div_along(const Var& x, const Var& v, int axis);

// u8 masks of zeros and ones; comparisons with NaN are false. A mask has no gradient. constant_like gives a mask the
// placements of the values it was computed from: where(constant_like(less(x.value(), limit), x), a, b).
Tensor equal(const Tensor& a, const Tensor& b);
Tensor not_equal(const Tensor& a, const Tensor& b);
Tensor less(const Tensor& a, const Tensor& b);
Tensor less_equal(const Tensor& a, const Tensor& b);
inline Tensor greater(const Tensor& a, const Tensor& b) { return less(b, a); }
inline Tensor greater_equal(const Tensor& a, const Tensor& b) { return less_equal(b, a); }
Var where(const Var& mask, const Var& a, const Var& b);  // a where the mask is not zero, b elsewhere

Var cast(const Var& x, DType dtype);  // to a floating type; gradients are cast back
// Has the value of `value`, but its gradient goes to `surrogate` unchanged.
Var straight_through(const Var& value, const Var& surrogate);

// Records a unary op whose values y were computed elsewhere, such as in the epilogue of another op. If the formula
// saves its output, the values of x are not read.
Var record_unary(const Op& op, Unary kind, Scalars scalars, const Var& x, const Tensor& y);

}  // namespace weft
