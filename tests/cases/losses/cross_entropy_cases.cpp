// SPDX-License-Identifier: Apache-2.0
#include "tests/cases/losses/loss_case.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/kernels/backend.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/common/precision.h"
#include "weft/losses/metrics/cross_entropy.h"

namespace weft {
namespace {

using Inputs = LossCase::Inputs;

// Some targets are ignored, including all of samples 2 to 4.
Tensor targets_of(const Inputs& x, int64_t ignore_index) {
  Tensor targets({x.rows[0].shape()[0], 2}, DType::i64);
  for (int64_t i = 0; i < targets.size(); ++i) {
    const int64_t number = 2 * x.first + i, sample = number / 2;
    const bool ignored = number % 5 == 1 || (sample >= 2 && sample <= 4);
    targets.mutate<int64_t>()[i] = ignored ? ignore_index : number * number % 4;
  }
  return targets;
}
enum class Weights { none, some };  // not tensors, since none may be made before a case runs
constexpr double some_weights[] = {0.5, 2, 1, 0.25};

// Element by element, as in PyTorch's documentation.
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
              here.weights = replicated_constant(
                  Tensor::from({4}, {some_weights, some_weights + 4}, DType::f64).to(x.rows[0].device()));
            return cross_entropy(x.rows[0], constant_like(targets, x.rows[0]), here, comm);
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
