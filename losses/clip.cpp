#include "losses/clip.h"

#include "collectives/ops.h"
#include "collectives/share.h"
#include "collectives/spreads.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/reduce.h"
#include "engine/ops/scores.h"
#include "losses/pairs.h"

namespace weft {
namespace {

Var one_tower(const Pairs& pairs, const Var& scale, const Exchange& exchange, Communicator& comm) {
  const AllKeys texts(pairs.second, pairs.division.rows, exchange, comm);
  const auto [of_images, of_texts, of_pairs] = texts.log_sum_exp_both(pairs.first, scale, pairs.numbers());
  return sum(of_images + of_texts - 2 * of_pairs);
}

Var local_rows(const Pairs& pairs, const Var& scale, const Exchange& exchange, Communicator& comm) {
  const AllKeys images(pairs.first, pairs.division.rows, exchange, comm),
      texts(pairs.second, pairs.division.rows, exchange, comm);
  return sum(texts.log_sum_exp(pairs.first, scale) + images.log_sum_exp(pairs.second, scale)) -
         2 * scale * pairs.matches();
}

Var replicated(const Pairs& pairs, const Var& scale, Communicator& comm) {
  const Var images = all_gather_v(pairs.first, pairs.division.rows, comm),
            texts = all_gather_v(pairs.second, pairs.division.rows, comm);
  return sum(score_log_sum_exp_both(images, texts, scale)) - 2 * scale * sum(images * texts);
}

}  // namespace

Var clip_loss(const Var& images, const Var& texts, const Var& scale, const ClipOptions& options, Communicator& comm) {
  const Pairs pairs("clip_loss", images, texts, comm);
  expect_scalar("clip_loss", "the scale", scale, pairs.first);
  const int64_t count = 2 * pairs.division.total;
  if (options.form == ClipForm::replicated)
    return share(keep_on(replicated(pairs, scale, comm), {0}, comm), count, comm);
  const auto sum_of_losses = options.form == ClipForm::one_tower ? one_tower : local_rows;
  return share(sum_of_losses(pairs, scale, options.exchange, comm), count, comm);
}

}  // namespace weft
