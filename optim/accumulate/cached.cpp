// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/accumulate/cached.h"

#include <deque>
#include <optional>

#include "weft/engine/kernels/backend.h"
#include "weft/engine/ops/activation_checkpoint.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/engine/tape/record.h"

namespace weft {
namespace {

// The features of one set of a micro-batch, and their cotangent from the tape of the loss.
struct Boundary {
  Tensor features, cotangent;
};
using Boundaries = std::vector<Boundary>;  // of one micro-batch, by set

// Checks that features have the same bits when they are encoded again. The comparison runs on the features' device, and
// its results are read once after all micro-batches, so that the host does not wait for a card in between.
class ReplayCheck {
 public:
  explicit ReplayCheck(const std::vector<Boundaries>& boundaries)
      : sets_(static_cast<int64_t>(boundaries[0].size())),
        differ_(Tensor::zeros({std::ssize(boundaries) * sets_}, DType::u8, boundaries[0][0].features.device())) {}

  void compare(const Features& again, const Boundaries& boundaries, int64_t micro_batch) {
    require(again.size() == boundaries.size(), "cached_backward: micro-batch ", micro_batch, " had ", boundaries.size(),
            " sets of features, and ", again.size(), " when it was encoded again");
    int64_t place = micro_batch * sets_;
    for (size_t set = 0; set < boundaries.size(); ++set, ++place) {
      const Tensor &first = boundaries[set].features, &second = again[set].value();
      expect(second.shape() == first.shape() && second.dtype() == first.dtype() && second.device() == first.device(),
             place);
      Tensor differs = differ_.slice(place, place + 1);
      backend(first.device()).mark_difference(first, second, differs);
    }
  }
  void expect_equal() const {
    const std::vector<double> differ = differ_.values();
    for (int64_t place = 0; place < std::ssize(differ); ++place) expect(differ[static_cast<size_t>(place)] == 0, place);
  }

 private:
  void expect(bool same, int64_t place) const {
    require(same, "cached_backward: set ", place % sets_, " of the features of micro-batch ", place / sets_,
            " had other values when it was encoded again; draw random numbers from explicit keys, and let ",
            "them depend on nothing that encoding changes");
  }

  const int64_t sets_;
  Tensor differ_;  // by micro-batch and set: 1 if the features differ
};

// The leaves that represent the features of a micro-batch on the tape of the loss.
Features leaves(const Features& features, Boundaries& boundaries, Tape& tape) {
  boundaries.resize(features.size());
  Features result;
  for (size_t set = 0; set < features.size(); ++set) {
    const Var& f = features[set];
    Boundary& boundary = boundaries[set];
    boundary.features = f.value();
    result.push_back(observe(with_placements(tape.watch(f.value()), f.placements()),
                             [&boundary](const Tensor& cotangent) { boundary.cotangent = cotangent; }));
  }
  return result;
}

using KeptTapes = std::deque<std::pair<Tape, Features>>;  // one per micro-batch, with Recompute::no

Features encode_first(int64_t micro_batch, const Encode& encode, Tape& tape, KeptTapes* kept) {
  if (kept) {
    auto& [own_tape, features] = kept->emplace_back();
    return features = encode(micro_batch, own_tape);
  }
  const Tape::Pause pause(&tape);
  return encode(micro_batch, tape);
}

Tensor backward_of_loss(const Encode& encode, const FeatureLoss& loss_of, Gradients& gradients,
                        std::vector<Boundaries>& boundaries, KeptTapes* kept) {
  Tape tape;
  std::vector<Features> parts;  // by set and micro-batch
  for (size_t i = 0; i < boundaries.size(); ++i) {
    Features features = encode_first(static_cast<int64_t>(i), encode, tape, kept);
    if (i == 0) parts.resize(features.size());
    require(!features.empty() && features.size() == parts.size(), "cached_backward: micro-batch ", i, " has ",
            features.size(), " sets of features, the first has ", parts.size());
    features = leaves(features, boundaries[i], tape);
    for (size_t set = 0; set < parts.size(); ++set) parts[set].push_back(features[set]);
  }
  Features joined;
  for (const Features& set : parts) joined.push_back(concat(set, 0));
  const Var loss = loss_of(tape, joined);
  tape.backward(loss, gradients);
  return loss.value();
}

// The inner product of features and their cotangents, whose gradients with respect to the features are the cotangents.
// The product of a value and its cotangent is always a share of this rank.
Var paired(const Features& features, const Boundaries& boundaries, Tape& tape) {
  Var total;
  for (size_t set = 0; set < boundaries.size(); ++set) {
    const Var& f = features[set];
    const Var cotangent = with_placements(tape.constant(boundaries[set].cotangent), f.placements().duals());
    const Var term = with_placements(cast(sum(f * cotangent), DType::f32), Placements(Placement::varying));
    total = total.defined() ? total + term : term;
  }
  return total;
}

// Encodes again as the second run of a checkpoint, so that Tape::recomputing() is true in layers. The checkpoint's
// first run only returns its input.
void replay(int64_t micro_batch, const Encode& encode, const Boundaries& boundaries, ReplayCheck& check,
            Gradients& gradients) {
  Tape tape;
  bool ran = false;
  const auto encode_again = [&](std::span<const Var> inputs) {
    if (!std::exchange(ran, true)) return inputs[0];
    const Features again = encode(micro_batch, tape);
    check.compare(again, boundaries, micro_batch);
    return paired(again, boundaries, tape);
  };
  const Var term =
      checkpoint(encode_again, {tape.constant(Tensor::zeros({}, DType::f32, boundaries[0].features.device()))});
  tape.backward(term, gradients);
}

}  // namespace

Tensor cached_backward(int64_t micro_batches, const Encode& encode, const FeatureLoss& loss, Gradients& gradients,
                       const std::function<void()>& before_last, Recompute recompute) {
  require(micro_batches > 0, "cached_backward: ", micro_batches,
          " micro-batches; without samples, give one that is empty");
  std::vector<Boundaries> boundaries(static_cast<size_t>(micro_batches));
  KeptTapes kept;
  const Tensor value =
      backward_of_loss(encode, loss, gradients, boundaries, recompute == Recompute::no ? &kept : nullptr);
  std::optional<ReplayCheck> check;
  if (recompute == Recompute::yes) check.emplace(boundaries);
  for (int64_t i = 0; i < micro_batches; ++i) {
    if (i + 1 == micro_batches && before_last) before_last();
    const Boundaries own = std::exchange(boundaries[static_cast<size_t>(i)], {});
    if (check) {
      replay(i, encode, own, *check, gradients);
      continue;
    }
    auto& [tape, features] = kept.front();
    tape.backward(paired(features, own, tape), gradients);
    kept.pop_front();
  }
  if (check) check->expect_equal();
  return value;
}

const Op observe_op{"observe", {}, Algebra::linear, Replay::always};

Var observe(const Var& x, std::function<void(const Tensor& cotangent)> callback) {
  return record(observe_op, x.value(), from(x, [callback = std::move(callback)](const Var& g) {
                  callback(g.value());
                  return g;
                }));
}

}  // namespace weft
