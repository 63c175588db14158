// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/contrastive/supcon.h"

#include <numeric>

#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/engine/tape/checks.h"
#include "weft/losses/common/division.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/common/precision.h"
#include "weft/losses/contrastive/all_keys.h"

namespace weft {
namespace {

// The number of features of all ranks in each class, of the features' type.
Tensor class_counts(const Var& labels, int64_t classes, DType dtype, Communicator& comm, Site site) {
  const Tensor ones = Tensor::full({labels.size(), 1}, 1, dtype, labels.device());
  return comm.all_reduce(scatter_add_rows(ones, labels.value(), classes).value().reshape({classes}), ReduceOp::sum,
                         site);
}

Tensor like(const Tensor& x, double value) { return Tensor::full(x.shape(), value, x.dtype(), x.device()); }

// The number of features whose class has another one, as a scalar; 1 where there are none, since the loss divides by
// it.
Tensor anchors(const Tensor& counts) {
  const Var kept = where(greater(counts, like(counts, 1.5)), counts, like(counts, 0));
  return maximum(sum(kept), Tensor::full({}, 1, counts.dtype(), counts.device())).value();
}

Tensor self_numbers(const Division& division) {
  Tensor numbers({division.mine(), 1}, DType::i64);
  std::iota(numbers.mutate<int64_t>(), numbers.mutate<int64_t>() + numbers.size(), division.first);
  return numbers;
}

}  // namespace

Var supcon(const Var& features, const Tensor& labels, int64_t classes, const SupConOptions& options, Communicator& comm,
           Site caller) try {
  const Site site = LossCall("supcon", caller)
                        .positive("temperature", options.temperature)
                        .count("classes", classes)
                        .schedule(options.schedule);
  require(features.shape().rank() == 2 && labels.dtype() == DType::i64 && labels.shape().rank() == 1 &&
              labels.shape()[0] == features.shape()[0],
          "features are (b, d) and labels i64 (b), not ", features.shape(), " and ", labels.dtype(), " ",
          labels.shape());
  check_in_range({"labels", "class"}, labels, classes);
  const Division division(features.shape()[0], comm, site);
  const Var z = l2_normalize(precise(features)), scale = constant_scale(1 / options.temperature, z);
  if (division.total < 2) return as_partial(sum(z) * 0.0, comm);

  const AllKeys all(z, division.rows, options.schedule, comm, site);
  const Var others = all.log_sum_exp(z, scale, {}, self_numbers(division)).of_queries;
  const Var own_class = constant_like(labels.to(z.device()), z);
  const Var sums = all_reduce(scatter_add_rows(z, own_class, classes), comm, ReduceOp::sum, site);
  const Tensor counts = class_counts(own_class, classes, z.dtype(), comm, site);
  const Tensor companions = (gather_rows(counts, own_class.value()) - 1).value(), none = like(companions, 0);
  const Var count = constant_like(maximum(companions, like(companions, 1)).value(), z);
  const Var positives = sum(z * (gather_rows(sums, own_class) - z), 1) / count / options.temperature;
  const Var terms = cast(others - cast(positives, DType::f64), z.dtype());
  const Var counted = where(constant_like(greater(companions, none), z), terms, constant_like(none, z));
  return as_partial(sum(counted) / replicated_constant(anchors(counts)), comm);
} catch (Error& error) {
  fail_in("supcon", caller, error);
}

}  // namespace weft
