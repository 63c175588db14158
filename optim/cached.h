#pragma once
// Backward through a loss of all samples of a large batch, such as a contrastive one, in the memory of one micro-batch
// and of all features. These are computed first and nothing else is kept; the loss, over all of them at once, is
// differentiated by them and by its own parameters; then each micro-batch is encoded again, on a tape, and the
// cotangents of its features go through.
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
// The gradients are those of the whole batch on one tape: the loss is differentiated once, however many micro-batches
// there are, and its collectives meet once. Random layers draw the same numbers again, since these depend on the pass
// and not on the order of calls. Batch norm in training is that of each micro-batch by itself, and its running averages
// move once for each: in the second run, Tape::recomputing() is true.
//
// With Between::tapes nothing is computed twice: the micro-batches' tapes are kept instead, with all the memory of the
// batch. What is left is a batch whose micro-batches are walked back through one by one.
#include <functional>
#include <vector>

#include "engine/tape.h"

namespace weft {

using Features = std::vector<Var>;  // one for each set, such as images and texts, with a row for each sample

enum class Between : uint8_t { features, tapes };  // what is kept between forward and backward

// Called twice for every micro-batch, unless tapes are kept, and must give the same bits again; else there is an Error
// when all gradients have been added.
// Collectives in it need equally many micro-batches on all ranks.
using Encode = std::function<Features(int64_t micro_batch, Tape& tape)>;
// This rank's share of the loss, given its rows of every set, in the order of the micro-batches.
using FeatureLoss = std::function<Var(Tape& tape, const Features& features)>;

// Adds to `gradients` in one backward for the loss and one for each micro-batch, in order, and hooks fire in each for
// the parameters that take part in it. `before_last` is called before the last of them: whatever its hooks show is
// complete, and a parameter that took part only before, such as a temperature, is complete by then. Returns what `loss`
// did.
Tensor cached_backward(int64_t micro_batches, const Encode& encode, const FeatureLoss& loss, Gradients& gradients,
                       const std::function<void()>& before_last = {}, Between keep = Between::features);

}  // namespace weft
