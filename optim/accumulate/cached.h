// SPDX-License-Identifier: Apache-2.0
#pragma once
// Cached gradients: backward through a loss over all samples of a large batch, such as a contrastive loss, in the
// memory of one micro-batch plus all features. First all features are computed without recording. Then the loss over
// all of them is differentiated with respect to the features and its own parameters. Finally each micro-batch is
// encoded again on a tape, and backward propagates the cotangents of its features.
//
//   const MicroBatches batch(rows, comm);
//   const auto encode = [&](int64_t i, Tape& tape) -> Features {
//     const Pass pass = {.training = true, .key = key, .first_sample = batch.first_sample(i)};
//     return {image_tower(tape.constant(batch.part(images, i)), pass),
//             text_tower(tape.constant(batch.part(texts, i)), pass)};
//   };
//   const auto loss = [&](Tape& tape, const Features& all) {
//     return clip_loss(all[0], all[1], scale(all[0]), {}, comm);
//   };
//   const Tensor share = cached_backward(batch.count(), encode, loss, gradients, [&] { sync.expect_last_pass(); });
//
// The gradients are those of the whole batch on one tape: the loss is differentiated once, and its collectives are
// called once, however many micro-batches there are. Random layers draw the same numbers in both encodings, since these
// depend on the pass and not on the order of calls. Batch norm in training normalizes each micro-batch by itself, and
// updates its running averages once per micro-batch: in the second encoding, Tape::recomputing() is true.
//
// With Recompute::no nothing is computed twice. All tapes of the micro-batches are kept instead, which takes the memory
// of the whole batch, and backward runs over the micro-batches one by one.
#include <functional>
#include <vector>

#include "weft/engine/tape/tape.h"

namespace weft {

using Features = std::vector<Var>;  // one per set, such as images and texts, with one row per sample

enum class Recompute : uint8_t { yes, no };  // whether to encode again in backward, or to keep all tapes

// Encodes a micro-batch. Called twice for each, unless tapes are kept, and must return the same bits again; otherwise
// there is an Error after all gradients have been added. Collectives in it require the same number of micro-batches on
// all ranks.
using Encode = std::function<Features(int64_t micro_batch, Tape& tape)>;
// Returns this rank's share of the loss, given its rows of every set, in the order of the micro-batches.
using FeatureLoss = std::function<Var(Tape& tape, const Features& features)>;

// Adds to `gradients`, in one backward for the loss and one for each micro-batch, in order. In each, hooks run for the
// parameters that take part in it. `before_last` is called before the last backward: gradients that its hooks report
// are complete, and parameters that it does not use, such as a temperature, are complete before it. Returns the value
// of `loss`.
Tensor cached_backward(int64_t micro_batches, const Encode& encode, const FeatureLoss& loss, Gradients& gradients,
                       const std::function<void()>& before_last = {}, Recompute recompute = Recompute::yes);

// The op by which cached_backward gets the cotangents of features. Returns x, and calls `callback` with its cotangent
// in every backward, even if the cotangent is zero: collectives in a micro-batch may wait for this rank although its
// loss does not depend on that micro-batch.
Var observe(const Var& x, std::function<void(const Tensor& cotangent)> callback);

}  // namespace weft
