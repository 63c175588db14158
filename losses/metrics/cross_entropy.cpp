// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/metrics/cross_entropy.h"

#include <algorithm>

#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/common/precision.h"

namespace weft {
namespace {

void check(const Var& logits, const Var& targets, const CrossEntropyOptions& options) {
  const Shape& shape = logits.shape();
  require(shape.rank() > 1 && shape[-1] > 0 && is_floating(logits.dtype()) && targets.dtype() == DType::i64 &&
              targets.shape() == shape.without(-1),
          "logits are (samples, ..., classes) and targets i64 (samples, ...), not ", logits.dtype(), " ", shape,
          " and ", targets.dtype(), " ", targets.shape());
  require(!options.weights.defined() || options.weights.shape() == Shape{shape[-1]}, "the weights of ", shape[-1],
          " classes are (", shape[-1], "), not ", options.weights.shape());
  require(options.label_smoothing >= 0 && options.label_smoothing <= 1, "the label smoothing is ",
          options.label_smoothing, ", but must be in 0..1");
  if (targets.device() != Device::cpu) return;
  const int64_t* target = targets.value().data<int64_t>();
  for (int64_t i = 0; i < targets.size(); ++i)
    require(target[i] == options.ignore_index || (target[i] >= 0 && target[i] < shape[-1]), "target ", target[i],
            " at position ", i, " is not in 0..", shape[-1] - 1, ", nor the one to ignore, ", options.ignore_index);
}

// The sum over all ranks, or 1 if it is zero, since the loss divides by it.
Tensor sum_of_weights(const Tensor& weights, Communicator& comm, Site site) {
  const Tensor mine = cast(sum(Var(weights)), DType::f64).value(), all = comm.all_reduce(mine, ReduceOp::sum, site),
               zero = Tensor::zeros({}, DType::f64, all.device());
  return (all + Var(equal(all, zero).to(DType::f64))).value().to(weights.dtype());
}

}  // namespace

Var cross_entropy(const Var& logits, const Var& targets, const CrossEntropyOptions& options, Communicator& comm,
                  Site caller) try {
  const Site site = LossCall("cross_entropy", caller)
                        .number("label smoothing", options.label_smoothing)
                        .count("ignore_index", options.ignore_index)
                        .choice(options.weights.defined() ? "weights" : "no weights");
  check(logits, targets, options);
  const int64_t classes = logits.shape()[-1], count = targets.size();
  const Var rows = precise(reshape(logits, {count, classes}));
  const Tensor given = targets.value().reshape({count});
  const auto everywhere = [&](int64_t target) {
    return Tensor::full({count}, static_cast<double>(target), DType::i64, given.device());
  };
  const Tensor counts = not_equal(given, everywhere(options.ignore_index));
  // Those to ignore are classes, too, in what follows.
  const Tensor chosen =
      where(counts, given, everywhere(std::clamp<int64_t>(options.ignore_index, 0, classes - 1))).value();
  const Var of_rows = cross_entropy(rows, constant_like(chosen, rows));
  const Tensor ones = Tensor::full({classes}, 1, rows.dtype(), rows.device()),
               of_classes = options.weights.defined() ? detach(options.weights).value().to(rows.dtype()) : ones,
               none = Tensor::zeros({count}, rows.dtype(), rows.device()),
               weights = where(counts, gather_rows(of_classes, chosen), none).value();

  const double smoothing = options.label_smoothing;
  Var losses = of_rows * constant_like(weights, rows) * (1 - smoothing);
  if (smoothing > 0)
    losses = losses - sum(mul_along(log_softmax(rows), replicated_constant(of_classes), -1), 1) *
                          (smoothing / static_cast<double>(classes));
  const Var counted = where(constant_like(counts, rows), losses, constant_like(none, rows));
  return as_partial(sum(counted) / replicated_constant(sum_of_weights(weights, comm, site)), comm);
} catch (Error& error) {
  fail_in("cross_entropy", caller, error);
}

}  // namespace weft
