#include "engine/ops/scores.h"

#include <cmath>

#include "engine/ops/elementwise.h"
#include "engine/ops/matmul.h"
#include "engine/ops/reduce.h"
#include "engine/ops/shape_ops.h"

namespace weft {
namespace {

Var wide(const Var& scalar, const Var& like) {
  return reshape(repeat(reshape(scalar, {}), 0, like.size()), like.shape());
}

Var scores(const Var& q, const Var& k, const Var& scale) {
  const Var products = matmul(q, k, Transpose::no, Transpose::yes);
  return products * wide(scale, products);
}

Var without(const Var& z, const Var& excluded) {
  if (!excluded.defined()) return z;
  Tensor mask = Tensor::zeros(z.shape(), DType::u8);
  const int64_t n = z.shape()[1], c = excluded.shape()[1];
  for (int64_t i = 0; i < z.shape()[0]; ++i)
    for (int64_t j = 0; j < c; ++j)
      if (const int64_t column = excluded.value().data<int64_t>()[i * c + j]; column >= 0)
        mask.mutate<uint8_t>()[i * n + column] = 1;
  return where(derived(mask, z), derived(Tensor::full(z.shape(), -INFINITY, z.dtype(), z.device()), z), z);
}

}  // namespace

Var score_log_sum_exp(const Var& q, const Var& k, const Var& scale, const Var& excluded) {
  return log_sum_exp(without(scores(q, k, scale), excluded), 1);
}

Var score_log_sum_exp_both(const Var& q, const Var& k, const Var& scale) {
  const Var z = scores(q, k, scale);
  return concat({log_sum_exp(z, 1), log_sum_exp(z, 0)}, 0);
}

Var score_softplus_sum(const Var& q, const Var& k, const Var& scale, const Var& shift) {
  const Var z = scores(q, k, scale);
  return sum(softplus(z + wide(shift, z)), 1);
}

}  // namespace weft
