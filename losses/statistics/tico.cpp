// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/statistics/tico.h"

#include <cmath>

#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/common/moments.h"
#include "weft/losses/common/precision.h"

namespace weft {

Tico::Tico(const std::string& name, int64_t width, const Init& init, const TicoOptions& options)
    : covariance(name + ".covariance", precise(init.full({width, width}, 0)).value()), options_(options) {
  register_buffer(covariance);
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
  const Var now = replicated_constant(averaged(sums[1].value(), samples));
  const Var apart = static_cast<double>(a.shape()[0]) - sum(a * b), along = sum(matmul(a, now) * a);
  return share(apart + along * options_.rho, samples, comm);
} catch (Error& error) {
  fail_in("Tico", caller, error);
}

void Tico::update() {
  if (samples_ > 0) covariance.value = averaged(products_, samples_);
  samples_ = 0;
}

Tensor Tico::averaged(const Var& products, int64_t samples) const {
  const Var mean = products / static_cast<double>(samples);
  return (Var(covariance.value) * options_.beta + mean * (1 - options_.beta)).value();
}

}  // namespace weft
