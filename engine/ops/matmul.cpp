// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/ops/matmul.h"

#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/engine/tape/checks.h"
#include "weft/engine/tape/record.h"

namespace weft {
namespace {

constexpr Transpose no = Transpose::no, yes = Transpose::yes;
bool is(Transpose t) { return t == yes; }
Transpose flip(Transpose t) { return is(t) ? no : yes; }

// One sample a line.
// clang-format off
const Op matmul_op{"matmul", {
    {"a b", {{3, 4}, {4, 2}}, [](auto x) { return matmul(x[0], x[1]); }},
    {"aT b", {{4, 3}, {4, 2}}, [](auto x) { return matmul(x[0], x[1], yes); }},
    {"a bT", {{3, 4}, {2, 4}}, [](auto x) { return matmul(x[0], x[1], no, yes); }},
    {"aT bT", {{4, 3}, {2, 4}}, [](auto x) { return matmul(x[0], x[1], yes, yes); }},
    {"batch", {{2, 3, 4}, {2, 4, 2}}, [](auto x) { return matmul(x[0], x[1]); }},
    {"batch aT bT", {{2, 4, 3}, {2, 2, 4}}, [](auto x) { return matmul(x[0], x[1], yes, yes); }},
    {"batch, one b", {{2, 3, 4}, {4, 2}}, [](auto x) { return matmul(x[0], x[1]); }},
    {"batch aT, one bT", {{2, 4, 3}, {2, 4}}, [](auto x) { return matmul(x[0], x[1], yes, yes); }},
    {"one a, batch", {{3, 4}, {2, 4, 2}}, [](auto x) { return matmul(x[0], x[1]); }},
    {"one aT, batch bT", {{4, 3}, {2, 2, 4}}, [](auto x) { return matmul(x[0], x[1], yes, yes); }},
}, Algebra::multilinear};
const Op linear_op{"linear", {
    {"", {{3, 4}, {4, 2}}, [](auto x) { return linear(x[0], x[1]); }},
    {"bias", {{3, 4}, {4, 2}, {2}}, [](auto x) { return linear(x[0], x[1], x[2]); }},
    {"bias, tanh", {{3, 4}, {4, 2}, {2}}, [](auto x) { return linear(x[0], x[1], x[2], {Unary::Tanh, {}}); }},
    {"gelu", {{2, 3, 4}, {4, 2}}, [](auto x) { return linear(x[0], x[1], {}, {Unary::Gelu, {}}); }},
    {"bias, relu, more axes", {{2, 3, 4}, {4, 2}, {2}},
     [](auto x) { return linear(x[0], x[1], x[2], {Unary::Relu, {}}); }, 0.1, 1},
}, Algebra::multilinear};
// An op with a bias is not linear: the bias would be added to every part of a Partial sum.
const Op biased_linear_op{"linear with bias", linear_op.samples};
const Op activate_op{"activate", {
    {"sigmoid", {{2, 3}}, [](auto x) { return activate(x[0], {Unary::Sigmoid, {}}); }},
    {"silu", {{2, 3}}, [](auto x) { return activate(x[0], {Unary::Silu, {}}); }},
}};
const Op pairwise_op{"pairwise_squared_distance", {
    {"", {{3, 2}, {4, 2}}, [](auto x) { return pairwise_squared_distance(x[0], x[1]); }},
}};
// clang-format on

// The extents of one product: of the result, and of the batch (1 if there is none).
struct Extents {
  int64_t batch, m, n;
  Shape result;
};

Extents check(const Op& op, const Var& a, bool ta, const Var& b, bool tb) {
  const Shape &A = a.shape(), &B = b.shape();
  const auto operands = [&] { return text(A) + (ta ? "T" : "") + " x " + text(B) + (tb ? "T" : ""); };
  require(is_floating(a.dtype()) && a.dtype() == b.dtype(), op.name, ": floating operands of one type are needed, not ",
          a.dtype(), " and ", b.dtype());
  check_one_device(op, a.device(), b.device());
  if (A.rank() < 2 || B.rank() < 2) fail({op.name, ": matrices are needed, not ", operands()});
  if (A[ta ? -2 : -1] != B[tb ? -1 : -2]) fail({op.name, ": inner extents differ in ", operands()});
  const bool same_batch = A.rank() == B.rank() && std::equal(A.begin(), A.end() - 2, B.begin());
  if (!same_batch && A.rank() != 2 && B.rank() != 2) fail({op.name, ": batches differ in ", operands()});
  const Shape& batched = A.rank() == 2 ? B : A;
  const int64_t m = A[ta ? -1 : -2], n = B[tb ? -2 : -1];
  return {batched.product(0, batched.rank() - 2), m, n, batched.with(-2, m).with(-1, n)};
}

// (batch..., m, n) as (batch m, n): a view.
Var stacked(const Var& x) { return reshape(x, {x.shape().product(0, x.shape().rank() - 1), x.shape()[-1]}); }

// The gradient of a matrix that was multiplied with every matrix of a batch, which is the sum over the batch.
Var over_batch(const Var& gradient, const Shape& shape) {
  if (gradient.shape() == shape) return gradient;
  const Shape& g = gradient.shape();
  return reshape(sum(reshape(gradient, {g.product(0, g.rank() - 2), g[-2], g[-1]}), 0), shape);
}

Tensor linear_values(const Var& x, const Var& w, const Var& bias, Activation activation) {
  require(w.shape().rank() == 2, "linear: the weight must be a matrix, not ", w.shape());
  const Extents e = check(linear_op, x, false, w, false);
  if (bias.defined())
    require(bias.shape() == Shape{e.n} && bias.dtype() == x.dtype() && bias.device() == x.device(),
            "linear: the bias must be ", x.dtype(), " (", e.n, ") on ", x.device(), ", not ", bias.dtype(), " ",
            bias.shape(), " on ", bias.device());
  Tensor y(e.result, x.dtype(), x.device());
  backend(x.device())
      .matmul(x.value(), false, w.value(), false, {bias.defined() ? &bias.value() : nullptr, activation}, y);
  return y;
}

}  // namespace

Var matmul(const Var& a, const Var& b, Transpose transpose_a, Transpose transpose_b) {
  const Transpose ta = transpose_a, tb = transpose_b;
  const Extents e = check(matmul_op, a, is(ta), b, is(tb));
  Tensor y = memory_for_result(a, e.result);
  backend(a.device()).matmul(a.value(), is(ta), b.value(), is(tb), {}, y);
  return record(matmul_op, y,
                from(a,
                     [=, shape = a.shape()](const Var& g) {  // does not capture a, whose values it does not need
                       return over_batch(is(ta) ? matmul(b, g, tb, yes) : matmul(g, b, no, flip(tb)), shape);
                     }),
                from(b, [=, shape = b.shape()](const Var& g) {
                  // If one b serves a whole batch, one product over all rows replaces a product per matrix.
                  if (shape.rank() == 2 && a.shape().rank() > 2 && !is(ta))
                    return is(tb) ? matmul(stacked(g), stacked(a), yes, no) : matmul(stacked(a), stacked(g), yes, no);
                  return over_batch(is(tb) ? matmul(g, a, yes, ta) : matmul(a, g, flip(ta), no), shape);
                }));
}

Var activate(const Var& y, Activation activation) {
  if (activation.identity()) return y;
  Tensor values = Tensor::like(y.value());
  backend(y.device()).unary(activation.op, activation.scalars, y.value(), values);
  return record_unary(activate_op, activation.op, activation.scalars, y, values);
}

Var activate_fused(const Var& pre, Activation activation) {
  return activation.identity() ? pre : record_unary(activate_op, activation.op, activation.scalars, pre, pre.value());
}

Var linear(const Var& x, const Var& w, const Var& bias, Activation activation) {
  // If the activation's derivative needs only its output, the epilogue of the product applies the activation in place.
  // The node of the product then holds the activated values, which none of its pullbacks reads. Otherwise the
  // activation is a pass of its own.
  const bool fused = saves(activation.op) != Saves::input;
  const Var y = record(bias.defined() ? biased_linear_op : linear_op,
                       linear_values(x, w, bias, fused ? activation : Activation{}),
                       from(x, [=](const Var& g) { return matmul(g, w, no, yes); }),
                       from(w, [=](const Var& g) { return matmul(stacked(x), stacked(g), yes, no); }),
                       from(bias, [](const Var& g) { return sum_outside(g, -1); }));
  return fused ? activate_fused(y, activation) : activate(y, activation);
}

Var pairwise_squared_distance(const Var& a, const Var& b) {
  require(a.shape().rank() == 2 && b.shape().rank() == 2 && a.shape()[1] == b.shape()[1],
          "pairwise_squared_distance: rows of one width are needed, not ", a.shape(), " and ", b.shape());
  const Var products = matmul(a, b, no, yes);
  const Var distances = add_along(add_along(-2 * products, sum(square(a), 1), 0), sum(square(b), 1), 1);
  return relu(distances);  // rounding may leave a tiny negative number where rows are equal
}

}  // namespace weft
