// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/cases/losses/loss_case.h"
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
#include "weft/losses/metrics/structural_similarity.h"

namespace weft {
namespace {

constexpr StructuralSimilarityOptions small_window{.data_range = 2, .sigma = 0.6, .k1 = 0.1, .k2 = 0.3};

// Pads every side with two pixels, reflected at the border.
Var reflected(const Var& x) {
  Var all = x;
  for (const int axis : {1, 2}) {
    const int64_t n = x.shape()[axis];
    const auto at = [&](int64_t i) { return slice(all, axis, i, i + 1); };
    all = concat({at(2), at(1), all, at(n - 2), at(n - 3)}, axis);
  }
  return all;
}

// From the pixels of every window and their deviations from the mean.
Var whole_similarity(const Var& predictions, const Var& targets) {
  const int64_t size = 5, reach = 2;  // the whole part of 3.5 sigma + 0.5
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
