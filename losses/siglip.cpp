#include "losses/siglip.h"

#include "collectives/share.h"
#include "collectives/spreads.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/matmul.h"
#include "engine/ops/reduce.h"
#include "engine/ops/shape_ops.h"
#include "losses/case.h"
#include "losses/loss_call.h"
#include "losses/pairs.h"

namespace weft {

Var siglip_loss(const Var& images, const Var& texts, const Var& scale, const Var& bias, const Exchange& exchange,
                Communicator& comm, Site caller) try {
  const Site site = LossCall("siglip_loss", caller).exchange(exchange);
  const Pairs pairs(images, texts, comm, site);
  expect_scalar("the scale", scale, pairs.first);
  expect_scalar("the bias", bias, pairs.first);
  const AllKeys all_texts(pairs.second, pairs.division.rows, exchange, comm, site);
  const Var sum_of_losses = sum(all_texts.softplus_sum(pairs.first, scale, bias, pairs.numbers()));
  return share(cast(sum_of_losses, pairs.first.dtype()), pairs.division.total, comm);
} catch (Error& error) {
  fail_in("siglip_loss", caller, error);
}

namespace {

Var whole_siglip(const LossCase::Inputs& x) {
  const Var products = matmul(x.rows[0], x.rows[1], Transpose::no, Transpose::yes);
  const int64_t n = products.shape()[0];
  const auto everywhere = [&](const Var& scalar) { return reshape(repeat(scalar, 0, n * n), {n, n}); };
  Tensor signs = Tensor::full({n, n}, -1, DType::f64);
  for (int64_t i = 0; i < n; ++i) signs.mutate<double>()[i * n + i] = 1;
  const Var logits = products * everywhere(exp(x.shared[0])) + everywhere(x.shared[1]);
  return -sum(log(sigmoid(logits * Var(signs)))) / static_cast<double>(n);
}

LossCase siglip_case(const char* variant, Exchange exchange) {
  return {"SigLIP",
          variant,
          {{{3}, {3}}, {{}, {}}},
          [=](const LossCase::Inputs& x, Communicator& comm) {
            return siglip_loss(x.rows[0], x.rows[1], exp(x.shared[0]), x.shared[1], exchange, comm);
          },
          whole_siglip};
}

const LossCase siglip_cases[] = {
    siglip_case("gather", {}),
    siglip_case("ring", {Exchange::Way::ring}),
    siglip_case("both ways", {Exchange::Way::both_ways}),
    siglip_case("in turn", {Exchange::Way::in_turn}),
    siglip_case("chunked", {Exchange::Way::chunked, 2}),
};

}  // namespace
}  // namespace weft
