#include "losses/nt_xent.h"

#include "collectives/ops.h"
#include "collectives/share.h"
#include "collectives/spreads.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/matmul.h"
#include "engine/ops/normalize.h"
#include "engine/ops/reduce.h"
#include "engine/ops/scores.h"
#include "engine/ops/shape_ops.h"
#include "losses/case.h"
#include "losses/division.h"

namespace weft {

Var nt_xent(const Var& first, const Var& second, double temperature, Communicator& comm) {
  const Division division(first.shape()[0], comm);
  const Var a = l2_normalize(first), b = l2_normalize(second);
  const Var keys = concat({all_gather_v(a, division.rows, comm), all_gather_v(b, division.rows, comm)}, 0),
            own = concat({a, b}, 0);
  const int64_t mine = division.mine();
  Tensor self = Tensor({2 * mine, 1}, DType::i64);
  for (int64_t i = 0; i < mine; ++i) {
    self.mutate<int64_t>()[i] = division.first + i;
    self.mutate<int64_t>()[mine + i] = division.total + division.first + i;
  }
  const Var scale = same_everywhere(Tensor::full({}, 1 / temperature, a.dtype(), a.device()));
  const Var positives = sum(a * b) * (2 / temperature);
  return as_partial(share(sum(score_log_sum_exp(own, keys, scale, derived(self, own))) - positives, 2 * division.total),
                    comm);
}

namespace {

Var whole(const LossCase::Inputs& x) {
  const Var z = l2_normalize(concat({x.rows[0], x.rows[1]}, 0));
  const int64_t n = z.shape()[0], b = n / 2;
  Tensor self = Tensor::zeros({n, n}, DType::f64), targets({n}, DType::i64);
  for (int64_t i = 0; i < n; ++i) {
    self.mutate<double>()[i * n + i] = 1e9;
    targets.mutate<int64_t>()[i] = (i + b) % n;
  }
  return mean(cross_entropy(matmul(z, z, Transpose::no, Transpose::yes) / 0.5 - Var(self), Var(targets)));
}

const LossCase nt_xent_case{
    "NT-Xent",
    "gather",
    {{{3}, {3}}},
    [](const LossCase::Inputs& x, Communicator& comm) { return nt_xent(x.rows[0], x.rows[1], 0.5, comm); },
    whole};

}  // namespace
}  // namespace weft
