// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/statistics/sigreg.h"

#include <algorithm>
#include <cmath>

#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/engine/tape/record.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/common/moments.h"
#include "weft/losses/common/precision.h"

namespace weft {
namespace {

Var wave_sums(const Var& x, double spacing, int64_t knots);
const Op wave_sums_op{"wave_sums", {{"", {{4, 3}}, [](auto x) { return wave_sums(x[0], 0.7, 2); }}}};

// The sums of cos(t x) over the rows of x (b, m), for t = spacing, 2 spacing, ..., and then those of sin(t x):
// (2 knots, m). All cosines and sines together are 2 knots times the size of x, so the pullback computes them again.
Var wave_sums(const Var& x, double spacing, int64_t knots) {
  Vars cosines, sines;
  for (int64_t k = 1; k <= knots; ++k) {
    const Var angles = Var(x.value()) * (spacing * static_cast<double>(k));
    cosines.push_back(sum(cos(angles), 0));
    sines.push_back(sum(sin(angles), 0));
  }
  const auto pullback = [=](const Var& g) {
    const auto row = [&](int64_t i) { return reshape(slice(g, 0, i, i + 1), {g.shape()[1]}); };
    Var gradient;
    for (int64_t k = 0; k < knots; ++k) {
      const double t = spacing * static_cast<double>(k + 1);
      const Var angles = x * t;
      const Var term = (mul_along(cos(angles), row(knots + k), -1) - mul_along(sin(angles), row(k), -1)) * t;
      gradient = k == 0 ? term : gradient + term;
    }
    return gradient;
  };
  return record(wave_sums_op, concat({stack(cosines, 0), stack(sines, 0)}, 0).value(), from(x, pullback));
}

// Random unit vectors. A larger `count` adds vectors without changing the first ones.
Var directions(Random key, int64_t count, const Var& x) {
  return replicated_constant(
      l2_normalize(Tensor::normal({count, x.shape()[-1]}, key, 0, 1, x.dtype(), x.device())).value());
}

// The expected means of the waves under a normal distribution, and the weights of the squared differences: first for
// cos, then for sin. t = 0 is left out, since the difference is always zero there.
struct Knots {
  Var normal, weights;
};
Knots knots_of(double spacing, int64_t knots, const Var& x) {
  const Var t = affine(Tensor::arange(knots, x.dtype(), x.device()), spacing, spacing), phi = exp(square(t) * -0.5);
  const Var weights = concat({slice(phi, 0, 0, knots - 1) * 2, slice(phi, 0, knots - 1, knots)}, 0) * spacing;
  return {replicated_constant(pad(phi, 0, 0, knots).value()),
          replicated_constant(concat({weights, weights}, 0).value())};
}

struct Statistic {
  Var share;
  int64_t samples;  // on all ranks
};
Statistic statistic(const Var& x, Random key, const SigregOptions& options, Communicator& comm, Site site) {
  const int64_t mine = x.shape()[0], views = x.shape().product(1, x.shape().rank() - 1), knots = options.knots - 1;
  const Var projections = matmul(reshape(x, {mine * views, x.shape()[-1]}), directions(key, options.directions, x),
                                 Transpose::no, Transpose::yes);
  const double spacing = options.t_max / static_cast<double>(knots);
  const Var waves = wave_sums(reshape(projections, {mine, views * options.directions}), spacing, knots);
  const Vars sums = global_sums({{row_count(x), waves}}, comm, site);
  const double samples = sums[0].value().item();
  const auto [normal, weights] = knots_of(spacing, knots, x);
  const Var apart = sub_along(sums[1] / std::max(samples, 1.0), normal, 0);
  const Var total = sum(mul_along(square(apart), weights, 0));
  return {counted_once(total * (samples / static_cast<double>(views * options.directions)), comm, site),
          std::llround(samples)};
}

LossCall checked(LossCall call, Random key, const SigregOptions& options) {
  require(options.directions > 0 && options.knots > 1, options.directions, " directions, ", options.knots,
          " knots; at least 1 direction and 2 knots are needed");
  return call.key(key)
      .count("directions", options.directions)
      .count("knots", options.knots)
      .positive("t_max", options.t_max);
}

}  // namespace

Var sigreg(const Var& x, Random key, const SigregOptions& options, Communicator& comm, Site caller) try {
  const Site site = checked(LossCall("sigreg", caller), key, options);
  require(x.shape().rank() > 1 && x.shape().product(1, x.shape().rank()) > 0 && is_floating(x.dtype()),
          "features (samples, ..., features) are needed, not ", x.dtype(), " ", x.shape());
  return statistic(precise(x), key, options, comm, site).share;
} catch (Error& error) {
  fail_in("sigreg", caller, error);
}

Var lejepa(const Var& global, const Var& local, Random key, const LejepaOptions& options, Communicator& comm,
           Site caller) try {
  const Site site = checked(LossCall("lejepa", caller).number("lambda", options.lambda), key, options.sigreg);
  require(global.shape().rank() == 3 && local.shape().rank() == 3 &&
              global.shape().without(1) == local.shape().without(1) && global.shape()[1] > 0 && global.shape()[2] > 0,
          "global views (samples, views, features) and local ones of the same samples are needed, not ", global.shape(),
          " and ", local.shape());
  const Var views = precise(concat({global, local}, 1)), center = mean(precise(global), 1);
  const int64_t count = views.shape()[1];
  const auto [normality, samples] = statistic(views, key, options.sigreg, comm, site);
  const Var apart = share(sum(square(views - repeat(center, 1, count))), samples * count * views.shape()[2], comm);
  return normality * options.lambda + apart * (1 - options.lambda);
} catch (Error& error) {
  fail_in("lejepa", caller, error);
}

}  // namespace weft
