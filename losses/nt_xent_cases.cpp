#include <algorithm>

#include "engine/ops/elementwise.h"
#include "engine/ops/matmul.h"
#include "engine/ops/normalize.h"
#include "engine/ops/reduce.h"
#include "engine/ops/shape_ops.h"
#include "losses/case.h"
#include "losses/nt_xent.h"

namespace weft {
namespace {

// A bank of five keys.
Var bank(Device device = Device::cpu) {
  return same_everywhere(l2_normalize(Tensor::uniform({5, 3}, {7}, -1, 1, DType::f64, device)).value());
}

// The cross entropy of a matrix of all similarities without its diagonal.
Var whole(const LossCase::Inputs& x, const Var& negatives) {
  const Var z = l2_normalize(concat({x.rows[0], x.rows[1]}, 0));
  const int64_t n = z.shape()[0], b = n / 2;
  Tensor self = Tensor::zeros({n, n}, DType::f64), targets({n}, DType::i64);
  for (int64_t i = 0; i < n; ++i) {
    self.mutate<double>()[i * n + i] = 1e9;
    targets.mutate<int64_t>()[i] = (i + b) % n;
  }
  Var logits = matmul(z, z, Transpose::no, Transpose::yes) / 0.5 - Var(self);
  if (negatives.defined()) logits = concat({logits, matmul(z, negatives, Transpose::no, Transpose::yes) / 0.5}, 1);
  return mean(cross_entropy(logits, Var(targets)));
}

LossCase in_way(const char* name, Exchange exchange) {
  return {"NT-Xent",
          name,
          {{{3}, {3}}},
          [=](const LossCase::Inputs& x, Communicator& comm) {
            return nt_xent(x.rows[0], x.rows[1], {.exchange = exchange}, comm);
          },
          [](const LossCase::Inputs& x) { return whole(x, {}); }};
}

const LossCase cases[] = {
    in_way("gather", {Exchange::Way::gather}),
    in_way("ring", {Exchange::Way::ring}),
    in_way("both ways", {Exchange::Way::both_ways}),
    in_way("in turn", {Exchange::Way::in_turn}),
    in_way("chunked", {Exchange::Way::chunked, 3}),
    {"NT-Xent",
     "memory bank",
     {{{3}, {3}}},
     [](const LossCase::Inputs& x, Communicator& comm) {
       return nt_xent(x.rows[0], x.rows[1], {.negatives = bank(x.rows[0].device())}, comm);
     },
     [](const LossCase::Inputs& x) { return whole(x, bank()); }},
};

}  // namespace
}  // namespace weft
