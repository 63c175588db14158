// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/statistics/koleo.h"

#include <algorithm>

#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/common/division.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/common/precision.h"

namespace weft {
namespace {

// For rows first to first + count - 1 of x (n, d), the numbers (count, k) of their nearest other rows. The nearest row
// y to a row x has the largest x y - |y|^2 / 2. The mean is first subtracted from all rows: where rows are close to
// each other and far from zero, their products differ by less than rounding. Works on as many rows at a time as keep
// their products within 2^22 numbers.
Tensor nearest(const Tensor& x, int64_t first, int64_t count, int64_t k) {
  constexpr int64_t products = 1 << 22;
  const int64_t all = x.shape()[0], last = first + count, step = std::max<int64_t>(products / all, 1);
  const Var rows = sub_along(Var(x), mean(Var(x), 0), -1), columns = transpose(rows);
  const Var bias = sum(square(rows), 1) * -0.5;
  const Tensor numbers = Tensor::arange(all, DType::i64, x.device());
  Vars found;
  for (int64_t begin = first; begin < last; begin += step) {
    const int64_t end = std::min(begin + step, last);
    const Var itself = one_hot(Var(numbers.slice(begin, end)), all, x.dtype());
    const Var near = linear(slice(rows, 0, begin, end), columns, bias) - itself * 4;  // others differ by 2 at most
    found.push_back(top_k(near, k).indices);
  }
  return concat(found, 0).value();
}

}  // namespace

Var koleo(const Var& x, const KoleoOptions& options, Communicator& comm, Site caller) try {
  const Site site = LossCall("koleo", caller)
                        .count("neighbours", options.neighbours)
                        .choice(options.among == Neighbours::of_all_ranks ? "of all" : "of own rank")
                        .not_negative("epsilon", options.epsilon);
  require(x.shape().rank() == 2 && is_floating(x.dtype()), "features (samples, features) are needed, not ", x.dtype(),
          " ", x.shape());
  require(options.neighbours > 0, options.neighbours, " neighbours; at least one is needed");
  const Division division(x.shape()[0], comm, site);
  const Var own = l2_normalize(precise(x), options.epsilon);
  const bool of_all = options.among == Neighbours::of_all_ranks;
  const Var all = of_all ? all_gather_v(own, division.rows, comm, site) : own;
  int64_t counted = 0;
  for (const int64_t rows : division.rows)
    if ((of_all ? division.total : rows) > options.neighbours) counted += rows;
  if (division.mine() == 0 || all.shape()[0] <= options.neighbours) return as_partial(sum(own) * 0, comm);

  const Tensor indices = nearest(all.value(), of_all ? division.first : 0, division.mine(), options.neighbours);
  const Var neighbours = gather_rows(all, constant_like(indices, own));
  const Var distances = norm(repeat(own, 1, options.neighbours) - neighbours, -1);
  return share(-sum(log(distances + options.epsilon)), counted * options.neighbours, comm);
} catch (Error& error) {
  fail_in("koleo", caller, error);
}

}  // namespace weft
