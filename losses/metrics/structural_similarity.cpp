// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/metrics/structural_similarity.h"

#include <cmath>

#include "weft/collectives/placement_conversions.h"
#include "weft/engine/maths/maths.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/images.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/common/precision.h"
#include "weft/losses/metrics/states.h"

namespace weft {
namespace {

std::vector<double> gaussian(double sigma) {
  const auto reach = static_cast<int64_t>(3.5 * sigma + 0.5);
  std::vector<double> window;
  double total = 0;
  for (int64_t i = -reach; i <= reach; ++i) {
    const double z = static_cast<double>(i) / sigma;
    total += window.emplace_back(maths::exp(-z * z / 2));
  }
  for (double& weight : window) weight /= total;
  return window;
}

// The means under the window of planes (any, height, width, 1), by one convolution along each axis.
Var blurred(const Var& planes, const std::vector<double>& window) {
  const auto size = static_cast<int64_t>(window.size());
  const auto along = [&](const Var& x, const Shape& kernel) {
    return conv2d(x, replicated_constant(Tensor::from(kernel, window, x.dtype(), x.device())));
  };
  return along(along(planes, {size, 1, 1, 1}), {1, size, 1, 1});
}

// Pads x with `reach` rows at both ends, reflected at the first and the last row.
Var mirrored(const Var& x, int64_t reach) {
  if (reach == 0) return x;
  const int64_t count = x.shape()[0];
  Tensor rows({count + 2 * reach}, DType::i64);
  for (int64_t i = -reach; i < count + reach; ++i)
    rows.mutate<int64_t>()[i + reach] = count - 1 - std::abs(count - 1 - std::abs(i));
  return gather_rows(x, replicated_constant(rows.to(x.device())));
}

// Every channel of every picture as a plane of its own, with a reflected border.
Var planes(const Var& pictures, int64_t border) {
  const Shape& s = pictures.shape();
  const Var across = permute(mirrored(permute(precise(pictures), {1, 2, 0, 3}), border), {1, 0, 2, 3});
  const Var all = permute(mirrored(across, border), {2, 3, 1, 0});
  return reshape(all, {s[0] * s[3], s[1] + 2 * border, s[2] + 2 * border, 1});
}

// The similarity at each position of the window in each plane.
Var similarities(const Var& a, const Var& b, const std::vector<double>& window, double c1, double c2) {
  const Var all = blurred(concat({a, b, square(a), square(b), a * b}, 0), window);
  const int64_t count = a.shape()[0];
  const auto part = [&](int64_t i) { return slice(all, 0, i * count, (i + 1) * count); };
  const Var mean_a = part(0), mean_b = part(1), product = mean_a * mean_b, squares = square(mean_a) + square(mean_b);
  const Var variances = relu(part(2) - square(mean_a)) + relu(part(3) - square(mean_b));
  return (product * 2 + c1) * ((part(4) - product) * 2 + c2) / ((squares + c1) * (variances + c2));
}

}  // namespace

Var structural_similarity(const Var& predictions, const Var& targets, const StructuralSimilarityOptions& options,
                          Communicator& comm, Site caller) try {
  const Site site = LossCall("structural_similarity", caller)
                        .positive("data range", options.data_range)
                        .positive("sigma", options.sigma)
                        .positive("k1", options.k1)
                        .positive("k2", options.k2)
                        .choice(options.places == Places::inside ? "inside" : "everywhere");
  const Shape& s = predictions.shape();
  require(s.rank() == 4 && s == targets.shape(), "pictures (samples, height, width, channels) are needed, not ", s,
          " and ", targets.shape());
  const std::vector<double> window = gaussian(options.sigma);
  const auto size = static_cast<int64_t>(window.size()), border = options.places == Places::inside ? 0 : size / 2;
  require(s[1] >= size && s[2] >= size, "a window of ", size, " x ", size, " does not fit into pictures ", s,
          "; take a smaller sigma");
  const double c1 = options.k1 * options.data_range, c2 = options.k2 * options.data_range;
  const Var places = similarities(planes(predictions, border), planes(targets, border), window, c1 * c1, c2 * c2);
  const int64_t each = s[3] * places.shape()[1] * places.shape()[2];
  const Var of_pictures = sum(reshape(places, {s[0], each}), 1) / static_cast<double>(each);
  return mean_over_ranks("similarities", of_pictures, comm, site);
} catch (Error& error) {
  fail_in("structural_similarity", caller, error);
}

}  // namespace weft
