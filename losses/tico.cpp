#include "losses/tico.h"

#include <cmath>

#include "collectives/share.h"
#include "collectives/spreads.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/matmul.h"
#include "engine/ops/normalize.h"
#include "engine/ops/reduce.h"
#include "engine/ops/shape_ops.h"
#include "losses/case.h"
#include "losses/loss_call.h"
#include "losses/moments.h"
#include "losses/precision.h"

namespace weft {

Tico::Tico(const std::string& name, int64_t width, const Init& init, const TicoOptions& options)
    : covariance(name + ".covariance", precise(init.full({width, width}, 0)).value()), options_(options) {
  has_buffer(covariance);
}

Var Tico::operator()(const Var& first, const Var& second, const Pass& pass, Communicator& comm, Site caller) try {
  const Site site = LossCall("Tico", caller).number("beta", options_.beta).number("rho", options_.rho);
  expect_views(first, second);
  const Var a = l2_normalize(precise(first)), b = l2_normalize(precise(second));
  const Tensor& before = covariance.value;
  require(a.shape()[1] == before.shape()[0] && a.dtype() == before.dtype(), "'", covariance.name, "' is ",
          before.dtype(), " ", before.shape(), ", the features are ", a.dtype(), " ", a.shape());

  const Var fixed = detach(a);
  const Vars sums = global_sums({{row_count(a), matmul(fixed, fixed, Transpose::yes, Transpose::no)}}, comm, site);
  const int64_t samples = std::llround(sums[0].value().item());
  require(samples > 0, "the batch of all ranks is empty");
  if (pass.training && !(a.tape() && a.tape()->recomputing())) {
    products_ = samples_ == 0 ? sums[1].value() : (Var(products_) + Var(sums[1].value())).value();
    samples_ += samples;
  }
  const Var now = same_everywhere(moved(sums[1].value(), samples));
  const Var apart = static_cast<double>(a.shape()[0]) - sum(a * b), along = sum(matmul(a, now) * a);
  return share(apart + along * options_.rho, samples, comm);
} catch (Error& error) {
  fail_in("Tico", caller, error);
}

void Tico::update() {
  if (samples_ > 0) covariance.value = moved(products_, samples_);
  samples_ = 0;
}

Tensor Tico::moved(const Var& products, int64_t samples) const {
  const Var mean = products / static_cast<double>(samples);
  return (Var(covariance.value) * options_.beta + mean * (1 - options_.beta)).value();
}

namespace {

Var whole_tico(const LossCase::Inputs& x, const Tensor& before) {
  const Var a = l2_normalize(x.rows[0]), b = l2_normalize(x.rows[1]);
  const double n = static_cast<double>(x.total);
  const Var now = Var(before) * 0.7 + detach(matmul(transpose(a), a)) * (0.3 / n);
  return 1.0 - sum(a * b) / n + sum(matmul(a, now) * a) * (5 / n);
}

// Finite differences would see through the part of M that has no gradient.
LossCase tico_case(std::string variant, Tensor (*before)()) {
  return {"TiCo",
          std::move(variant),
          {{{3}, {3}}},
          [=](const LossCase::Inputs& x, Communicator& comm) {
            const Device device = x.rows[0].device();
            Tico tico("tico", 3, {.key = {}, .dtype = DType::f64, .device = device}, {.beta = 0.7, .rho = 5});
            tico.covariance.value = before().to(device);
            return tico(x.rows[0], x.rows[1], {.training = true}, comm);
          },
          [=](const LossCase::Inputs& x) { return whole_tico(x, before()); },
          0};
}
Tensor at_first() { return Tensor::zeros({3, 3}, DType::f64); }
Tensor later() { return Tensor::uniform({3, 3}, {4}, -1, 1, DType::f64); }
const LossCase tico_cases[] = {tico_case("first step", at_first), tico_case("later step", later)};

}  // namespace
}  // namespace weft
