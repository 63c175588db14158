#include "apps/shared/training.h"

#include <algorithm>

#include "collectives/agreement.h"
#include "collectives/debug.h"
#include "collectives/ops.h"
#include "collectives/spreads.h"
#include "collectives/transports/self.h"
#include "optim/make_trainer.h"

namespace weft {

// As many as common numbers of ranks divide.
constexpr int64_t exact_blocks = 24;

Training::Training(const std::vector<ParameterGroup>& groups, const Launch& rank, const Options& options)
    : comm_(rank.comm),
      alone_(connect_self()),
      parameters_(options.zero == 3 ? std::vector<Parameter*>() : parameters_of(groups)),
      blocks_(options.accumulate * (options.fast_reductions || options.zero == 3 ? 1 : exact_blocks)),
      trainer_(make_trainer(groups, comm_, {.stage = static_cast<int>(options.zero)})) {
  const bool exact = !options.fast_reductions && options.zero < 3;
  if (exact) exact_ = std::make_unique<ExactGradients>(parameters_, comm_);
}

// Blocks are cut from the batch, or from a rank's part of it; a rank with fewer than others goes on with empty ones.
Training::Part Training::part(std::span<const int64_t> batch) const {
  const int64_t ranks = comm_.size(), me = comm_.rank().value, total = static_cast<int64_t>(batch.size());
  const int64_t pieces = exact() ? blocks_ : blocks_ * ranks, most = (pieces + ranks - 1) / ranks;
  const auto first_piece = [&](int64_t rank) { return pieces * rank / ranks; };
  const auto begin = [&](int64_t piece) { return total * piece / pieces; };
  Part part;
  part.batch_ = batch;
  for (int64_t i = 0; i <= most; ++i) part.begins_.push_back(begin(std::min(first_piece(me) + i, first_piece(me + 1))));
  for (int64_t r = 0; r < ranks; ++r) part.rows_.push_back(begin(first_piece(r + 1)) - begin(first_piece(r)));
  for (int64_t i = 0; i < most; ++i) {
    int64_t samples = exact() ? part.first(i + 1) - part.first(i) : 0;
    for (int64_t r = 0; r < ranks && !exact(); ++r)
      samples += begin(first_piece(r) + i + 1) - begin(first_piece(r) + i);
    part.weights_.push_back(static_cast<double>(samples) / static_cast<double>(total));
  }
  return part;
}

std::span<const int64_t> Training::Part::block(int64_t i) const {
  const auto begin = static_cast<size_t>(first(i)), end = static_cast<size_t>(first(i + 1));
  return batch_.subspan(begin, end - begin);
}

Var Training::over_batch(const Features& mine, const Part& part, const BatchLoss& loss) {
  if (!exact_) return loss(mine, comm_);
  Features everyones;
  for (const Var& features : mine) everyones.push_back(all_gather_equal(features, part.rows(), comm_));
  return keep_on(loss(everyones, alone_), {0}, comm_);
}

Tensor Training::backward(const Part& part, const Encode& encode, const FeatureLoss& loss, Between keep) {
  const auto encode_block = [&](int64_t block, Tape& tape) {
    debug_if_asked(tape, comm_);
    return encode(block, tape);
  };
  const auto loss_of_all = [&](Tape& tape, const Features& features) {
    debug_if_asked(tape, comm_);
    return loss(tape, features);
  };
  return cached_backward(part.blocks(), encode_block, loss_of_all, gradients(), {}, keep);
}

Var Training::watch(Tape& tape, Parameter& parameter) {
  const Var watched = trainer_->watch(tape, parameter);
  return exact_ ? as_invariant(watched, comm_) : watched;
}

void Training::step(double rate) {
  if (debug_is_asked()) {
    std::vector<NamedTensor> values;
    for (const Parameter* parameter : parameters_) values.push_back({parameter->name, parameter->value});
    expect_agreement("debug: a step", values, comm_);
  }
  if (exact_) exact_->hand_over(trainer_->gradients());
  trainer_->step(rate);
}

}  // namespace weft
