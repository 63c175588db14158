// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/contrastive/clip.h"

#include <algorithm>

#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/scores.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/contrastive/pairs.h"

namespace weft {
namespace {

constexpr const char* names_of_forms[] = {"one tower", "local rows", "replicated"};

// The sum over this rank's pairs of the image's and the text's loss, in f64.
Var one_tower(const Pairs& pairs, const Var& scale, const KeySchedule& schedule, Communicator& comm, Site site) {
  const AllKeys texts(pairs.second, pairs.division.rows, schedule, comm, site);
  const auto [of_images, of_pairs, of_texts] = texts.log_sum_exp_both(pairs.first, scale, pairs.numbers());
  return sum(of_images + of_texts - 2 * of_pairs);
}

Var local_rows(const Pairs& pairs, const Var& scale, const KeySchedule& schedule, Communicator& comm, Site site) {
  const auto losses = [&](const Var& queries, const Var& keys) {
    const AllKeys all(keys, pairs.division.rows, schedule, comm, site);
    const AllKeys::LogSumExps found = all.log_sum_exp(queries, scale, pairs.numbers());
    return found.of_queries - found.of_targets;
  };
  const Var of_images = losses(pairs.first, pairs.second);  // first, so that all ranks call collectives in one order
  return sum(of_images + losses(pairs.second, pairs.first));
}

Var replicated(const Pairs& pairs, const Var& scale, Communicator& comm, Site site) {
  const Var images = all_gather_v(pairs.first, pairs.division.rows, comm, site),
            texts = all_gather_v(pairs.second, pairs.division.rows, comm, site);
  const int64_t b = pairs.division.total;
  const Var own = replicated_constant(Tensor::arange(b, DType::i64, images.device()));
  const Var found = score_log_sum_exp_both(images, texts, scale, own);
  const auto part = [&](int64_t i) { return slice(found, 0, i * b, (i + 1) * b); };
  return sum(part(0) + part(1) - 2 * part(2));
}

}  // namespace

Var clip_loss(const Var& images, const Var& texts, const Var& scale, const ClipOptions& options, Communicator& comm,
              Site caller) try {
  const Site site =
      LossCall("clip_loss", caller).choice(names_of_forms[static_cast<int>(options.form)]).schedule(options.schedule);
  const Pairs pairs(images, texts, comm, site);
  expect_scalar("the scale", scale, pairs.first);
  const int64_t count = 2 * pairs.division.total;
  const auto narrow = [&](const Var& sum) { return cast(sum, pairs.first.dtype()); };
  if (options.form == ClipForm::replicated)
    return keep_on(narrow(replicated(pairs, scale, comm, site)), {0}, comm) / std::max(1.0, static_cast<double>(count));
  const auto sum_of_losses = options.form == ClipForm::one_tower ? one_tower : local_rows;
  return share(narrow(sum_of_losses(pairs, scale, options.schedule, comm, site)), count, comm);
} catch (Error& error) {
  fail_in("clip_loss", caller, error);
}

}  // namespace weft
