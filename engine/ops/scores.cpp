// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/ops/scores.h"

#include <cmath>

#include "weft/engine/kernels/backend.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/engine/tape/checks.h"
#include "weft/engine/tape/fused_gradients.h"
#include "weft/engine/tape/record.h"

namespace weft {
namespace {

Var columns(const Var& like, const Shape& shape, const std::vector<double>& values) {
  return replicated_constant(Tensor::from(shape, values, DType::i64, like.device()));
}
Var some_excluded(const Var& like) { return columns(like, {3, 2}, {-1, 1, 3, 0, 2, -1}); }
Var some_targets(const Var& like) { return columns(like, {3}, {2, -1, 1}); }

// One sample a line.
// clang-format off
const Op score_log_sum_exp_op{"score_log_sum_exp", {
    {"", {{3, 2}, {4, 2}, {}}, [](auto x) { return score_log_sum_exp(x[0], x[1], x[2]); }},
    {"excluded", {{3, 2}, {4, 2}, {}}, [](auto x) { return score_log_sum_exp(x[0], x[1], x[2], some_excluded(x[0])); }},
    {"targets", {{3, 2}, {4, 2}, {}},
     [](auto x) { return score_log_sum_exp(x[0], x[1], x[2], {}, some_targets(x[0])); }},
    {"excluded, targets", {{3, 2}, {4, 2}, {}},
     [](auto x) { return score_log_sum_exp(x[0], x[1], x[2], some_excluded(x[0]), some_targets(x[0])); }},
    {"of itself", {{3, 2}, {}}, [](auto x) { return score_log_sum_exp(x[0], x[0], x[1]); }},
}};
const Op log_sum_exp_both_op{"score_log_sum_exp_both", {
    {"", {{3, 2}, {4, 2}, {}}, [](auto x) { return score_log_sum_exp_both(x[0], x[1], x[2]); }},
    {"targets", {{3, 2}, {4, 2}, {}},
     [](auto x) { return score_log_sum_exp_both(x[0], x[1], x[2], some_targets(x[0])); }},
}};
const Op softplus_sum_op{"score_softplus_sum", {
    {"", {{3, 2}, {4, 2}, {}, {}}, [](auto x) { return score_softplus_sum(x[0], x[1], x[2], x[3]); }},
    {"targets", {{3, 2}, {4, 2}, {}, {}},
     [](auto x) { return score_softplus_sum(x[0], x[1], x[2], x[3], some_targets(x[0])); }},
}};
// clang-format on

// Repeats a scalar for every element.
Var everywhere(const Var& scalar, const Var& like) {
  return reshape(repeat(reshape(scalar, {}), 0, like.size()), like.shape());
}

// The gradients of a sum of scores.
struct ScoreSumGradients {
  const Op& op;
  ScoreSum kind;
  Var q, k, scale, shift, excluded, targets;  // those after `scale` may be undefined
  Var sums = {};

  int64_t count_sums() const { return q.shape()[0] + (kind == ScoreSum::log_sum_exp_both ? k.shape()[0] : 0); }
  // Whether the scores of the targets follow the sums.
  bool scores_of_targets() const { return targets.defined() && kind != ScoreSum::softplus; }

  Scores scores() const {
    const auto optional = [&](const char* one, const Var& x) {
      return x.defined() ? std::optional(columns(one, x.value())) : std::nullopt;
    };
    return {q.value(),
            k.value(),
            scale.value(),
            shift.defined() ? &shift.value() : nullptr,
            optional("excluded column", excluded),
            optional("target", targets)};
  }

  std::array<Tensor, 4> fused(const Tensor& g) const {
    const auto if_tracked = [](const Var& x) { return x.tracked() ? Tensor::like(x.value()) : Tensor(); };
    ScoreGradients to{if_tracked(q), if_tracked(k), if_tracked(scale), if_tracked(shift)};
    backend(g.device()).score_gradients(kind, scores(), sums.value(), g, to);
    return {to.q, to.k, to.scale, to.shift};
  }

  Var composed(size_t input, const Var& g) const {
    const Var products = matmul(q, k, Transpose::no, Transpose::yes);
    const Var slopes = score_slopes(products, cast(g, products.dtype()));
    switch (input) {
      case 0: return matmul(slopes, k) * everywhere(scale, q);
      case 1: return matmul(slopes, q, Transpose::yes) * everywhere(scale, k);
      case 2: return reshape(sum(slopes * products), scale.shape());
      default: return reshape(sum(slopes), shift.shape());
    }
  }

 private:
  Var score_slopes(const Var& products, const Var& g) const {
    const int64_t m = q.shape()[0];
    const Var z = products * everywhere(scale, products);
    if (kind == ScoreSum::softplus) return softplus_slopes(z + everywhere(shift, z), g);
    const Var sum_slopes = log_sum_exp_slopes(z, g);
    if (!targets.defined()) return sum_slopes;
    const Var chosen = constant_like(mask("target", targets).to(z.dtype()), targets);
    return sum_slopes + mul_along(chosen, slice(g, 0, count_sums(), count_sums() + m), 0);
  }
  Var softplus_slopes(const Var& z, const Var& g) const {
    if (!targets.defined()) return mul_along(sigmoid(z), g, 0);
    const Var signs = constant_like(affine(mask("target", targets).to(z.dtype()), -2, 1).value(), targets);
    return mul_along(sigmoid(z * signs) * signs, g, 0);
  }
  Var log_sum_exp_slopes(Var z, const Var& g) const {
    const int64_t m = q.shape()[0], n = k.shape()[0];
    if (excluded.defined())
      z = where(constant_like(mask("excluded column", excluded), excluded),
                constant_like(Tensor::full(z.shape(), -INFINITY, z.dtype(), z.device()), z), z);
    const Var row_slopes = mul_along(shares(z, 0), slice(g, 0, 0, m), 0);
    return kind == ScoreSum::log_sum_exp ? row_slopes : row_slopes + mul_along(shares(z, 1), slice(g, 0, m, m + n), 1);
  }
  // e^z divided by its sum, which may be empty.
  static Var shares(const Var& z, int axis) {
    const Var sums = log_sum_exp(z, 1 - axis);
    const Var zeros = constant_like(Tensor::zeros(sums.shape(), z.dtype(), z.device()), sums);
    const Tensor nothing = Tensor::full(sums.shape(), -INFINITY, z.dtype(), z.device());
    return exp(sub_along(z, where(constant_like(equal(sums.value(), nothing), sums), zeros, sums), axis));
  }
  // A mask with ones at the columns of each row, computed on the host.
  Tensor mask(const char* one, const Var& of_rows) const {
    const Indices named = columns(one, of_rows.value().to(Device::cpu));
    const int64_t m = q.shape()[0], n = k.shape()[0];
    Tensor mask = Tensor::zeros({m, n}, DType::u8);
    const int64_t per_row = m > 0 ? named.size() / m : 0;
    for (int64_t i = 0; i < named.size(); ++i)
      if (const int64_t j = named.on_host()[i]; j >= 0) mask.mutate<uint8_t>()[i / per_row * n + j] = 1;
    return mask.to(of_rows.device());
  }
  Indices columns(const char* one, const Tensor& numbers) const {
    return {{op.name.c_str(), one}, numbers, k.shape()[0], Indices::Negative::none};
  }
};

void check_columns(const Op& op, const char* what, const Var& columns, const ScoreSumGradients& x) {
  const int64_t m = x.q.shape()[0];
  require(columns.dtype() == DType::i64 && columns.shape().rank() > 0 && columns.shape()[0] == m, op.name, ": the ",
          what, " must be i64, for ", m, " rows, not ", columns.dtype(), " ", columns.shape());
  check_one_device(op, x.q.device(), columns.device());
}

void check(const ScoreSumGradients& x) {
  const Op& op = x.op;
  check_floating(op, x.q);
  const auto fits = [&](const Var& v) { return v.dtype() == x.q.dtype() && v.device() == x.q.device(); };
  const Shape &q = x.q.shape(), &k = x.k.shape();
  require(q.rank() == 2 && k.rank() == 2 && q[1] == k[1] && fits(x.k), op.name,
          ": rows of one width, type and device are needed, not ", x.q.dtype(), " ", q, " on ", x.q.device(), " and ",
          x.k.dtype(), " ", k, " on ", x.k.device());
  if (x.kind == ScoreSum::softplus) check_defined(op, x.shift);
  for (const Var* scalar : {&x.scale, &x.shift})
    require(!scalar->defined() || (scalar->size() == 1 && fits(*scalar)), op.name, ": scale and shift must be ",
            x.q.dtype(), " scalars on ", x.q.device(), ", not ", scalar->dtype(), " ", scalar->shape(), " on ",
            scalar->device());
  if (x.excluded.defined()) {
    require(x.excluded.shape().rank() == 2, op.name, ": the excluded columns must be (rows, count), not ",
            x.excluded.shape());
    check_columns(op, "excluded columns", x.excluded, x);
  }
  if (x.targets.defined()) {
    require(x.targets.shape().rank() == 1, op.name, ": the targets must be (rows), not ", x.targets.shape());
    check_columns(op, "targets", x.targets, x);
  }
}

Var summed(ScoreSumGradients gradients) {
  check(gradients);
  const int64_t count = gradients.count_sums() + (gradients.scores_of_targets() ? gradients.q.shape()[0] : 0);
  Tensor sums({count}, DType::f64, gradients.q.device());
  backend(gradients.q.device()).score_sums(gradients.kind, gradients.scores(), sums);
  gradients.sums = sums;
  const FusedGradients fused(gradients);
  return record(gradients.op, sums, from(gradients.q, fused.part(0)), from(gradients.k, fused.part(1)),
                from(gradients.scale, fused.part(2)), from(gradients.shift, fused.part(3)), data(gradients.excluded),
                data(gradients.targets));
}

}  // namespace

Var score_log_sum_exp(const Var& q, const Var& k, const Var& scale, const Var& excluded, const Var& targets) {
  return summed({score_log_sum_exp_op, ScoreSum::log_sum_exp, q, k, scale, {}, excluded, targets});
}

Var score_log_sum_exp_both(const Var& q, const Var& k, const Var& scale, const Var& targets) {
  return summed({log_sum_exp_both_op, ScoreSum::log_sum_exp_both, q, k, scale, {}, {}, targets});
}

Var score_softplus_sum(const Var& q, const Var& k, const Var& scale, const Var& shift, const Var& targets) {
  return summed({softplus_sum_op, ScoreSum::softplus, q, k, scale, shift, {}, targets});
}

}  // namespace weft
