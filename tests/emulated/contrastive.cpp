// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/contrastive.h"

#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/scores.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/contrastive/pairs.h"

namespace weft::emulated {
namespace {

// The cross entropy of every query's scores with its target.
Var cross_entropies(const Var& queries, const Var& keys, const Var& scale, const Tensor& targets,
                    const Var& excluded = {}) {
  const int64_t count = queries.shape()[0];
  const Var found =
      score_log_sum_exp(queries, keys, scale, excluded, constant_like(targets.to(queries.device()), queries));
  return slice(found, 0, 0, count) - slice(found, 0, count, 2 * count);
}

// The pairs of all ranks. Members are in the order in which all ranks gather.
struct GatheredPairs {
  const Pairs own;
  const Var images, texts;

  GatheredPairs(const Var& own_images, const Var& own_texts, Adjoint adjoint, Communicator& comm)
      : own(own_images, own_texts, comm),
        images(gather(own.first, own.division.rows, adjoint, comm)),
        texts(gather(own.second, own.division.rows, adjoint, comm)) {}
};

// The loss of this rank, of which the mean over ranks is the mean of `losses` over the samples of all ranks.
Var loss_of_rank(const Var& losses, int64_t total, const Var& like, Communicator& comm) {
  return share(cast(sum(losses), like.dtype()), total, comm) * static_cast<double>(comm.size());
}

// The rows with a gradient for those of one pass only.
Var live_in(int pass, int passes, const Var& x) {
  const int64_t rows = x.shape()[0], begin = rows * pass / passes, end = rows * (pass + 1) / passes;
  return concat({detach(slice(x, 0, 0, begin)), slice(x, 0, begin, end), detach(slice(x, 0, end, rows))}, 0);
}

}  // namespace

Var clip_losses(const Var& images, const Var& texts, const Var& scale, Adjoint adjoint, Communicator& comm) {
  const GatheredPairs pairs(images, texts, adjoint, comm);
  const Tensor own = pairs.own.numbers();
  return (cross_entropies(pairs.own.first, pairs.texts, scale, own) +
          cross_entropies(pairs.own.second, pairs.images, scale, own)) /
         2;
}

Var clip_of_own_rows(const Var& images, const Var& texts, const Var& scale, Adjoint adjoint, Communicator& comm) {
  const Division pairs(images.shape()[0], comm);
  return loss_of_rank(clip_losses(images, texts, scale, adjoint, comm), pairs.total, images, comm);
}

Var clip_of_all_rows(const Var& images, const Var& texts, const Var& scale, Adjoint adjoint, Communicator& comm) {
  const GatheredPairs pairs(images, texts, adjoint, comm);
  const Tensor all = Tensor::arange(pairs.own.division.total, DType::i64);
  const Var losses =
      cross_entropies(pairs.images, pairs.texts, scale, all) + cross_entropies(pairs.texts, pairs.images, scale, all);
  return as_varying(cast(mean(losses) / 2, images.dtype()), comm);
}

Var clip_of_cached_features(const Var& images, const Var& texts, const Var& scale, int passes, Communicator& comm) {
  Vars losses;
  for (int pass = 0; pass < passes; ++pass)
    losses.push_back(
        clip_of_own_rows(live_in(pass, passes, images), live_in(pass, passes, texts), scale, Adjoint::sum, comm));
  return sum(stack(losses, 0));
}

Var siglip(const Var& images, const Var& texts, const Var& scale, const Var& bias, Adjoint adjoint,
           Communicator& comm) {
  const Pairs pairs(images, texts, comm);
  const Var all_texts = gather(pairs.second, pairs.division.rows, adjoint, comm);
  const Var targets = constant_like(pairs.numbers().to(images.device()), pairs.first);
  return loss_of_rank(score_softplus_sum(pairs.first, all_texts, scale, bias, targets), pairs.division.total, images,
                      comm);
}

Var nt_xent(const Var& first, const Var& second, double temperature, Adjoint adjoint, Communicator& comm) {
  const Division samples(first.shape()[0], comm);
  const int64_t b = samples.mine();
  Rows rows = samples.rows;
  for (int64_t& count : rows) count *= 2;
  const Var own = concat({first, second}, 0), keys = gather(own, rows, adjoint, comm);
  const Tensor numbers =
      Tensor::arange(2 * samples.total, DType::i64).slice(2 * samples.first, 2 * samples.first + 2 * b);
  const Tensor counterparts = concat({numbers.slice(b, 2 * b), numbers.slice(0, b)}, 0).value();
  const Var losses = cross_entropies(own, keys, constant_scale(1 / temperature, own), counterparts,
                                     constant_like(numbers.reshape({2 * b, 1}).to(own.device()), own));
  return loss_of_rank(losses, 2 * samples.total, first, comm);
}

}  // namespace weft::emulated
