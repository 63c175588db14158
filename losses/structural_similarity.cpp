#include "losses/structural_similarity.h"

#include <cmath>

#include "collectives/spreads.h"
#include "engine/maths.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/images.h"
#include "engine/ops/index.h"
#include "engine/ops/reduce.h"
#include "engine/ops/shape_ops.h"
#include "losses/case.h"
#include "losses/loss_call.h"
#include "losses/precision.h"
#include "losses/states.h"

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

// Means under the window, of planes (any, height, width, 1): along one axis, then along the other.
Var blurred(const Var& planes, const std::vector<double>& window) {
  const auto size = static_cast<int64_t>(window.size());
  const auto along = [&](const Var& x, const Shape& kernel) {
    return conv2d(x, same_everywhere(Tensor::from(kernel, window, x.dtype(), x.device())));
  };
  return along(along(planes, {size, 1, 1, 1}), {1, size, 1, 1});
}

// Rows of x, with so many more at both ends as a mirror on the first and the last shows them.
Var mirrored(const Var& x, int64_t reach) {
  if (reach == 0) return x;
  const int64_t count = x.shape()[0];
  Tensor rows({count + 2 * reach}, DType::i64);
  for (int64_t i = -reach; i < count + reach; ++i)
    rows.mutate<int64_t>()[i + reach] = count - 1 - std::abs(count - 1 - std::abs(i));
  return gather_rows(x, same_everywhere(rows.to(x.device())));
}

// Every channel of every picture by itself, with such a border.
Var planes(const Var& pictures, int64_t border) {
  const Shape& s = pictures.shape();
  const Var across = permute(mirrored(permute(precise(pictures), {1, 2, 0, 3}), border), {1, 0, 2, 3});
  const Var all = permute(mirrored(across, border), {2, 3, 1, 0});
  return reshape(all, {s[0] * s[3], s[1] + 2 * border, s[2] + 2 * border, 1});
}

// Of each place of the window in each plane.
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

namespace {

constexpr StructuralSimilarityOptions small_window{.data_range = 2, .sigma = 0.6, .k1 = 0.1, .k2 = 0.3};

// With two more pixels on each side: those next to it, in the opposite order.
Var reflected(const Var& x) {
  Var all = x;
  for (const int axis : {1, 2}) {
    const int64_t n = x.shape()[axis];
    const auto at = [&](int64_t i) { return slice(all, axis, i, i + 1); };
    all = concat({at(2), at(1), all, at(n - 2), at(n - 3)}, axis);
  }
  return all;
}

// From every window's pixels, with deviations from their means.
Var whole_similarity(const Var& predictions, const Var& targets) {
  const int64_t size = 5, reach = 2;  // 3.5 sigma and a half, without the fraction
  Tensor weights({size * size}, DType::f64);
  double total = 0;
  for (int64_t i = 0; i < weights.size(); ++i) {
    const double y = static_cast<double>(i / size - reach), z = static_cast<double>(i % size - reach);
    total += weights.mutate<double>()[i] = maths::exp(-(y * y + z * z) / (2 * 0.36));
  }
  const Var window = Var(weights) / total;
  const auto mean_of = [&](const Var& v) { return sum(mul_along(v, window, 3), 3); };
  const Var a = unfold(predictions, {size, size}), b = unfold(targets, {size, size});
  const Var mean_a = mean_of(a), mean_b = mean_of(b);
  const Var da = a - repeat(mean_a, 3, size * size), db = b - repeat(mean_b, 3, size * size);
  const double c1 = 0.04, c2 = 0.36;
  return mean((2 * mean_a * mean_b + c1) * (2 * mean_of(da * db) + c2) /
              ((square(mean_a) + square(mean_b) + c1) * (mean_of(square(da)) + mean_of(square(db)) + c2)));
}

LossCase similarity_case(const char* variant, Places places) {
  StructuralSimilarityOptions options = small_window;
  options.places = places;
  return {"SSIM",
          variant,
          {{{6, 7, 2}, {6, 7, 2}}, {}, 0, 2, 4},
          [=](const LossCase::Inputs& x, Communicator& comm) {
            return keep_on(structural_similarity(x.rows[0], x.rows[1], options, comm), {0}, comm);
          },
          [=](const LossCase::Inputs& x) {
            const bool inside = places == Places::inside;
            return whole_similarity(inside ? x.rows[0] : reflected(x.rows[0]),
                                    inside ? x.rows[1] : reflected(x.rows[1]));
          }};
}
const LossCase similarity_cases[] = {similarity_case("inside", Places::inside),
                                     similarity_case("everywhere", Places::everywhere)};

}  // namespace
}  // namespace weft
