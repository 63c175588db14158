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
Var nt_xent_bank(Device device = Device::cpu) {
  return same_everywhere(l2_normalize(Tensor::uniform({5, 3}, {7}, -1, 1, DType::f64, device)).value());
}

// The cross entropy of a matrix of all similarities without its diagonal.
Var whole_nt_xent(const LossCase::Inputs& x, const Var& negatives) {
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

LossCase nt_xent_case(const char* name, Exchange exchange) {
  return {"NT-Xent",
          name,
          {{{3}, {3}}},
          [=](const LossCase::Inputs& x, Communicator& comm) {
            return nt_xent(x.rows[0], x.rows[1], {.exchange = exchange}, comm);
          },
          [](const LossCase::Inputs& x) { return whole_nt_xent(x, {}); }};
}

const LossCase nt_xent_cases[] = {
    nt_xent_case("gather", {Exchange::Way::gather}),
    nt_xent_case("ring", {Exchange::Way::ring}),
    nt_xent_case("both ways", {Exchange::Way::both_ways}),
    nt_xent_case("in turn", {Exchange::Way::in_turn}),
    nt_xent_case("chunked", {Exchange::Way::chunked, 3}),
    {"NT-Xent",
     "memory bank",
     {{{3}, {3}}},
     [](const LossCase::Inputs& x, Communicator& comm) {
       return nt_xent(x.rows[0], x.rows[1], {.negatives = nt_xent_bank(x.rows[0].device())}, comm);
     },
     [](const LossCase::Inputs& x) { return whole_nt_xent(x, nt_xent_bank()); }},
};

}  // namespace
}  // namespace weft
