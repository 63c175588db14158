#include "optim/cached.h"

#include <deque>
#include <optional>

#include "collectives/case.h"
#include "engine/backend.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"
#include "engine/ops/shape_ops.h"
#include "engine/record.h"

namespace weft {
namespace {

// x, whose cotangent is shown to `see`. Always: collectives in a micro-batch may wait for this rank though its loss
// does not depend on that micro-batch.
const Op observe_op{"observe", {}, Algebra::linear, Replay::always};
Var observe(const Var& x, std::function<void(const Tensor& cotangent)> see) {
  return record(observe_op, x.value(), from(x, [see = std::move(see)](const Var& g) {
                  see(g.value());
                  return g;
                }));
}
std::vector<Shape> matrix(int, int) { return {{2, 3}}; }
const DistributedCase observe_case{"observe", matrix,
                                   [](auto x, Communicator&) { return observe(x[0], [](const Tensor&) {}); },
                                   [](const auto& all) { return all; }};

// Where the tape of the loss and that of a micro-batch meet.
struct Seam {
  Tensor features, cotangent;
};
using Seams = std::vector<Seam>;  // of one micro-batch, by set

// Whether features have the same bits when they are encoded again. That is noted where the features are, and asked for
// when all have been: so nothing waits for a card in between.
class Replays {
 public:
  explicit Replays(const std::vector<Seams>& seams)
      : sets_(static_cast<int64_t>(seams[0].size())),
        differ_(Tensor::zeros({std::ssize(seams) * sets_}, DType::u8, seams[0][0].features.device())) {}

  void compare(const Features& again, const Seams& seams, int64_t micro_batch) {
    require(again.size() == seams.size(), "cached_backward: micro-batch ", micro_batch, " had ", seams.size(),
            " sets of features, and ", again.size(), " when it was encoded again");
    int64_t place = micro_batch * sets_;
    for (size_t set = 0; set < seams.size(); ++set, ++place) {
      const Tensor &first = seams[set].features, &second = again[set].value();
      expect(second.shape() == first.shape() && second.dtype() == first.dtype() && second.device() == first.device(),
             place);
      Tensor differs = differ_.slice(place, place + 1);
      backend(first.device()).mark_difference(first, second, differs);
    }
  }
  void check() const {
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
  Tensor differ_;  // of each set of each micro-batch: 1 if it does
};

// The leaves that stand for a micro-batch's features on the tape of the loss.
Features leaves(const Features& features, Seams& seams, Tape& tape) {
  seams.resize(features.size());
  Features result;
  for (size_t set = 0; set < features.size(); ++set) {
    const Var& f = features[set];
    Seam& seam = seams[set];
    seam.features = f.value();
    result.push_back(observe(with_spreads(tape.watch(f.value()), f.spreads()),
                             [&seam](const Tensor& cotangent) { seam.cotangent = cotangent; }));
  }
  return result;
}

using Kept = std::deque<std::pair<Tape, Features>>;  // of each micro-batch, where tapes are kept

Features encode_at_first(int64_t micro_batch, const Encode& encode, Tape& tape, Kept* kept) {
  if (kept) {
    auto& [own_tape, features] = kept->emplace_back();
    return features = encode(micro_batch, own_tape);
  }
  const Tape::Pause pause(&tape);
  return encode(micro_batch, tape);
}

Tensor backward_of_loss(const Encode& encode, const FeatureLoss& loss_of, Gradients& gradients,
                        std::vector<Seams>& seams, Kept* kept) {
  Tape tape;
  std::vector<Features> parts;  // by set and micro-batch
  for (size_t i = 0; i < seams.size(); ++i) {
    Features features = encode_at_first(static_cast<int64_t>(i), encode, tape, kept);
    if (i == 0) parts.resize(features.size());
    require(!features.empty() && features.size() == parts.size(), "cached_backward: micro-batch ", i, " has ",
            features.size(), " sets of features, the first has ", parts.size());
    features = leaves(features, seams[i], tape);
    for (size_t set = 0; set < parts.size(); ++set) parts[set].push_back(features[set]);
  }
  Features joined;
  for (const Features& set : parts) joined.push_back(concat(set, 0));
  const Var loss = loss_of(tape, joined);
  tape.backward(loss, gradients);
  return loss.value();
}

// A scalar whose gradients by the features are their cotangents. The product of a value and its cotangent is always a
// share of this rank.
Var paired(const Features& features, const Seams& seams, Tape& tape) {
  Var total;
  for (size_t set = 0; set < seams.size(); ++set) {
    const Var& f = features[set];
    const Var cotangent = with_spreads(tape.constant(seams[set].cotangent), f.spreads().duals());
    const Var term = with_spreads(cast(sum(f * cotangent), DType::f32), Spreads(Spread::varying));
    total = total.defined() ? total + term : term;
  }
  return total;
}

// Encodes again inside a checkpoint, whose first run took place long before: so layers know that it is a second one.
void replay(int64_t micro_batch, const Encode& encode, const Seams& seams, Replays& replays, Gradients& gradients) {
  Tape tape;
  bool ran = false;
  const auto encode_again = [&](std::span<const Var> stand_in) {
    if (!std::exchange(ran, true)) return stand_in[0];
    const Features again = encode(micro_batch, tape);
    replays.compare(again, seams, micro_batch);
    return paired(again, seams, tape);
  };
  const Var term = checkpoint(encode_again, {tape.constant(Tensor::zeros({}, DType::f32, seams[0].features.device()))});
  tape.backward(term, gradients);
}

}  // namespace

Tensor cached_backward(int64_t micro_batches, const Encode& encode, const FeatureLoss& loss, Gradients& gradients,
                       const std::function<void()>& before_last, Between keep) {
  require(micro_batches > 0, "cached_backward: ", micro_batches,
          " micro-batches; without samples, give one that is empty");
  std::vector<Seams> seams(static_cast<size_t>(micro_batches));
  Kept kept;
  const Tensor value = backward_of_loss(encode, loss, gradients, seams, keep == Between::tapes ? &kept : nullptr);
  std::optional<Replays> replays;
  if (keep == Between::features) replays.emplace(seams);
  for (int64_t i = 0; i < micro_batches; ++i) {
    if (i + 1 == micro_batches && before_last) before_last();
    const Seams own = std::exchange(seams[static_cast<size_t>(i)], {});
    if (replays) {
      replay(i, encode, own, *replays, gradients);
      continue;
    }
    auto& [tape, features] = kept.front();
    tape.backward(paired(features, own, tape), gradients);
    kept.pop_front();
  }
  if (replays) replays->check();
  return value;
}

}  // namespace weft
