// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/common/moments.h"

#include <algorithm>
#include <cmath>

#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {

Vars global_sums(std::span<const Var> mine, Communicator& comm, Site site) {
  Vars flat, sums;
  for (const Var& x : mine) flat.push_back(reshape(x, {x.size()}));
  const Var all = all_reduce_equal(concat(flat, 0), comm, site);
  int64_t begin = 0;
  for (const Var& x : mine) {
    sums.push_back(reshape(slice(all, 0, begin, begin + x.size()), x.shape()));
    begin += x.size();
  }
  return sums;
}

Var row_count(const Var& x) {
  return with_placements(Tensor::full({}, static_cast<double>(x.shape()[0]), x.dtype(), x.device()), x.placements());
}

Var counted_once(const Var& whole, Communicator& comm, Site site) {
  return keep_on(vary(whole, comm, site), {0}, comm);
}

Var identity(const Var& like) {
  const int64_t n = like.shape()[0];
  return replicated_constant(one_hot(Tensor::arange(n, DType::i64, like.device()), n, like.dtype()).value());
}

void expect_views(const Var& first, const Var& second) {
  require(first.shape().rank() == 2 && first.shape() == second.shape(),
          "two views of the same samples are needed, each (samples, features), not ", first.shape(), " and ",
          second.shape());
  require(is_floating(first.dtype()) && first.dtype() == second.dtype(),
          "features of one floating type are needed, not ", first.dtype(), " and ", second.dtype());
}

namespace {

// The rows minus a constant near their mean, so that neither the squares of large values nor the rounding of a large
// mean hides a small deviation. The constant cancels in every moment and therefore has no gradient.
struct NearMean {
  int64_t count;
  Vars origins, rows;
};

NearMean near_mean(const Vars& matrices, Communicator& comm, Site site) {
  const double own = static_cast<double>(matrices[0].shape()[0]);
  Vars mine = {Tensor::full({}, own, DType::f64, matrices[0].device())};
  for (const Var& x : matrices) mine.push_back(cast(sum(Var(detach(x).value()), 0), DType::f64));
  const Vars sums = global_sums(mine, comm, site);
  NearMean result = {std::llround(sums[0].value().item()), {}, {}};
  for (size_t i = 0; i < matrices.size(); ++i) {
    const Var mean = sums[i + 1] / static_cast<double>(std::max<int64_t>(result.count, 1));
    result.origins.push_back(replicated_constant(cast(mean, matrices[i].dtype()).value()));
    result.rows.push_back(sub_along(matrices[i], result.origins[i], -1));
  }
  return result;
}

Var outer(const Var& a, const Var& b) { return matmul(reshape(a, {a.size(), 1}), reshape(b, {1, b.size()})); }

}  // namespace

Moments moments(const Vars& matrices, std::initializer_list<std::pair<size_t, size_t>> pairs, Communicator& comm,
                Columns columns, Site site) {
  const bool all = columns == Columns::all;
  const auto [count, origins, rows] = near_mean(matrices, comm, site);
  Vars mine;
  for (const Var& x : rows) {
    mine.push_back(sum(x, 0));
    mine.push_back(sum(square(x), 0));
  }
  for (const auto& [i, j] : pairs)
    mine.push_back(all ? matmul(rows[i], rows[j], Transpose::yes, Transpose::no) : sum(rows[i] * rows[j], 0));

  Vars averages;
  for (const Var& x : global_sums(mine, comm, site))
    averages.push_back(x / static_cast<double>(std::max<int64_t>(count, 1)));
  const auto offset = [&](size_t i) { return averages[2 * i]; };
  Moments result = {count, {}, {}, {}};
  for (size_t i = 0; i < rows.size(); ++i) {
    result.means.push_back(origins[i] + offset(i));
    result.variances.push_back(averages[2 * i + 1] - square(offset(i)));
  }
  for (const auto& [i, j] : pairs)
    result.covariances.push_back(averages[2 * rows.size() + result.covariances.size()] -
                                 (all ? outer(offset(i), offset(j)) : offset(i) * offset(j)));
  return result;
}

}  // namespace weft
