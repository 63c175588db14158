#include "losses/cross_entropy.h"

#include "collectives/spreads.h"
#include "engine/backend.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/index.h"
#include "engine/ops/normalize.h"
#include "engine/ops/reduce.h"
#include "engine/ops/shape_ops.h"
#include "losses/case.h"
#include "losses/loss_call.h"
#include "losses/precision.h"

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

// Some class for every target, also for those to ignore.
Tensor within_classes(const Tensor& targets, int64_t classes) {
  Tensor result = Tensor::like(targets);
  const auto limit = [&](Binary kind, const Tensor& x, double by) {
    backend(x.device()).binary(kind, x, Tensor::full(x.shape(), by, DType::i64, x.device()), result);
  };
  limit(Binary::Maximum, targets, 0);
  limit(Binary::Minimum, result, static_cast<double>(classes - 1));
  return result;
}

// What is divided by: of all ranks, and one where nothing counts.
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
  const Tensor given = targets.value().reshape({count}), chosen = within_classes(given, classes),
               ignored = Tensor::full({count}, static_cast<double>(options.ignore_index), DType::i64, given.device()),
               counts = not_equal(given, ignored);
  const Tensor ones = Tensor::full({classes}, 1, rows.dtype(), rows.device()),
               of_classes = options.weights.defined() ? detach(options.weights).value().to(rows.dtype()) : ones,
               none = Tensor::zeros({count}, rows.dtype(), rows.device()),
               weights = where(counts, gather_rows(of_classes, chosen), none).value();

  const double smoothing = options.label_smoothing;
  Var losses = cross_entropy(rows, derived(chosen, rows)) * derived(weights, rows) * (1 - smoothing);
  if (smoothing > 0)
    losses = losses - sum(mul_along(log_softmax(rows), same_everywhere(of_classes), -1), 1) *
                          (smoothing / static_cast<double>(classes));
  const Var counted = where(derived(counts, rows), losses, derived(none, rows));
  return as_partial(sum(counted) / same_everywhere(sum_of_weights(weights, comm, site)), comm);
} catch (Error& error) {
  fail_in("cross_entropy", caller, error);
}

namespace {

using Inputs = LossCase::Inputs;

// Some of them to be ignored: all of samples 2 to 4.
Tensor targets_of(const Inputs& x, int64_t ignore_index) {
  Tensor targets({x.rows[0].shape()[0], 2}, DType::i64);
  for (int64_t i = 0; i < targets.size(); ++i) {
    const int64_t number = 2 * x.first + i, sample = number / 2;
    const bool ignored = number % 5 == 1 || (sample >= 2 && sample <= 4);
    targets.mutate<int64_t>()[i] = ignored ? ignore_index : number * number % 4;
  }
  return targets;
}
enum class Weights { none, some };  // as numbers: no tensor is made before a case runs
constexpr double some_weights[] = {0.5, 2, 1, 0.25};

// Element by element, as PyTorch's documentation has it.
Var whole_cross_entropy(const Inputs& x, Weights weights, const CrossEntropyOptions& o) {
  const Var logs = log(softmax(reshape(x.rows[0], {x.total * 2, 4})));
  const std::vector<double> targets = targets_of(x, o.ignore_index).values();
  const auto weight = [&](int64_t c) { return weights == Weights::some ? some_weights[c] : 1.0; };
  Var loss = Tensor::zeros({}, DType::f64);
  double all = 0;
  for (int64_t i = 0; i < x.total * 2; ++i) {
    const auto target = static_cast<int64_t>(targets[static_cast<size_t>(i)]);
    if (target == o.ignore_index) continue;
    all += weight(target);
    for (int64_t c = 0; c < 4; ++c) {
      const double label = (c == target ? 1 - o.label_smoothing : 0) + o.label_smoothing / 4;
      loss = loss - sum(slice(slice(logs, 0, i, i + 1), 1, c, c + 1)) * (label * weight(c));
    }
  }
  return loss / all;
}

LossCase cross_entropy_case(const char* variant, Weights weights, const CrossEntropyOptions& options) {
  return {"cross entropy",
          variant,
          {{{2, 4}}},
          [=](const Inputs& x, Communicator& comm) {
            const Tensor targets = targets_of(x, options.ignore_index).to(x.rows[0].device());
            CrossEntropyOptions here = options;
            if (weights == Weights::some)
              here.weights = same_everywhere(
                  Tensor::from({4}, {some_weights, some_weights + 4}, DType::f64).to(x.rows[0].device()));
            return cross_entropy(x.rows[0], derived(targets, x.rows[0]), here, comm);
          },
          [=](const Inputs& x) { return whole_cross_entropy(x, weights, options); }};
}
const LossCase cross_entropy_cases[] = {
    cross_entropy_case("", Weights::none, {}),
    cross_entropy_case("a class is ignored", Weights::none, {.ignore_index = 3}),
    cross_entropy_case("weights", Weights::some, {}),
    cross_entropy_case("smoothing", Weights::none, {.label_smoothing = 0.2}),
    cross_entropy_case("weights, smoothing", Weights::some, {.label_smoothing = 0.2}),
};

}  // namespace
}  // namespace weft
