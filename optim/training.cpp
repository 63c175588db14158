// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/training.h"

#include <algorithm>
#include <cmath>

#include "weft/collectives/checks/agreement.h"
#include "weft/collectives/checks/debug.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/transports/self.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/optim/parallel/make_trainer.h"

namespace weft {

// Divisible by common numbers of ranks.
constexpr int64_t blocks_of_same_bits = 24;

Training::Training(const std::vector<ParameterGroup>& groups, Communicator& comm, const Options& options,
                   TapeRecord* record)
    : comm_(comm),
      alone_(connect_self()),
      options_(options),
      record_(record),
      parameters_(options.stage == 3 ? std::vector<Parameter*>() : parameters_of(groups)),
      pieces_(options.accumulate * (options.same_bits ? blocks_of_same_bits : comm.size())),
      trainer_(make_trainer(groups, comm, {.stage = static_cast<int>(options.stage)})) {
  require(!options.same_bits || options.stage < 3, "Training: same_bits at stage 3, where no rank has whole gradients");
  require(options.average == 0 || options.stage < 3,
          "Training: an average at stage 3, where no rank has whole weights");
  if (options.same_bits) exact_ = std::make_unique<ExactGradients>(parameters_, comm);
  if (options.average > 0) average_ = std::make_unique<WeightAverage>(optimizer().parameters(), optimizer().owned());
}

// A rank with fewer pieces than others has empty ones at the end.
LocalBatch Training::local_batch(std::span<const int64_t> batch) const {
  const int64_t ranks = comm_.size(), me = comm_.rank().value, total = std::ssize(batch);
  const int64_t count = (pieces_ + ranks - 1) / ranks;
  const auto begin = [&](int64_t rank, int64_t i) {
    return total * std::min(pieces_ * rank / ranks + i, pieces_ * (rank + 1) / ranks) / pieces_;
  };
  LocalBatch local{{}, {}, total};
  for (int64_t r = 0; r < ranks; ++r) local.rows.push_back(begin(r, count) - begin(r, 0));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = begin(me, i), last = begin(me, i + 1);
    int64_t in_group = 0;
    for (int64_t r = 0; r < ranks; ++r)
      if (!exact_ || r == me) in_group += begin(r, i + 1) - begin(r, i);
    local.micro_batches.push_back({batch.subspan(static_cast<size_t>(first), static_cast<size_t>(last - first)), first,
                                   static_cast<double>(in_group) / static_cast<double>(total)});
  }
  return local;
}

void Training::begin(Tape& tape) {
  debug_if_asked(tape, comm_);
  if (record_) record_->add(tape);
}

Tensor Training::backward(const LocalBatch& batch, const SampleFeatures& encode, const BatchLoss& loss) {
  const auto encode_one = [&](int64_t i, Tape& tape) {
    begin(tape);
    return encode(tape, batch.micro_batches[static_cast<size_t>(i)].samples);
  };
  const auto loss_of_all = [&](Tape& tape, const Features& mine) {
    begin(tape);
    return exact_ ? loss_of_gathered(mine, batch.rows, loss) : loss(mine, comm_);
  };
  if (options_.accumulate == 1 && !options_.recompute && !exact_) {
    Tape tape;
    const Var share = loss_of_all(tape, encode_one(0, tape));
    tape.backward(share, gradients());
    return share.value();
  }
  return cached_backward(std::ssize(batch.micro_batches), encode_one, loss_of_all, gradients(), {},
                         options_.recompute ? Recompute::yes : Recompute::no);
}

double Training::evaluate(const LocalBatch& batch, const SampleFeatures& encode, const BatchLoss& loss) {
  Tape tape;
  const Tape::Pause without_gradients(&tape);
  std::vector<Vars> blocks;  // of each kind of features
  for (const MicroBatch& micro : batch.micro_batches) {
    const Features features = encode(tape, micro.samples);
    blocks.resize(features.size());
    for (size_t i = 0; i < features.size(); ++i) blocks[i].push_back(features[i]);
  }
  const auto gathered = [&](const Var& mine) {  // with a placement that meets that of a watched parameter
    return exact_ ? all_gather_equal(mine, batch.rows, comm_)
                  : tape.constant(comm_.all_gather_v(mine.value(), batch.rows));
  };
  Features all;
  for (const Vars& each : blocks) all.push_back(gathered(concat(each, 0)));
  return loss(all, alone_).value().item();
}

// Every rank computes the whole loss, in the order of the samples. It is the share of rank 0; other shares are zero.
Var Training::loss_of_gathered(const Features& mine, const Rows& rows, const BatchLoss& loss) {
  Features all;
  for (const Var& features : mine) all.push_back(all_gather_equal(features, rows, comm_));
  return keep_on(loss(all, alone_), {0}, comm_);
}

Var Training::watch(Parameter& parameter, const Var& features) {
  const Var watched = trainer_->watch(*features.tape(), parameter);
  return exact_ ? as_invariant(watched, comm_) : watched;
}

std::optional<double> Training::step(double rate, double max_norm, Norm norm) {
  if (debug_is_asked()) {
    std::vector<NamedTensor> values;
    for (const Parameter* parameter : parameters_) values.push_back({parameter->name, parameter->value});
    expect_agreement("debug: a step", values, comm_);
  }
  if (exact_) exact_->hand_over(trainer_->gradients());
  std::optional<double> measured;
  if (std::isinf(max_norm) && norm == Norm::always) measured = trainer_->norm();
  const double clipped = trainer_->step(rate, max_norm);
  follow();
  return std::isinf(max_norm) ? measured : clipped;
}

void Training::renew(double rate) {
  trainer_->update(rate);
  follow();
}

// The average keeps less in the first steps, so that it forgets the random weights of the beginning.
void Training::follow() {
  if (!average_) return;
  const auto steps = static_cast<double>(optimizer().steps(*parameters_[0]));
  average_->update(std::min(options_.average, steps / (steps + 9)));
}

void Training::averaged(const std::function<void()>& f) {
  if (!average_) return f();
  comm_.barrier();  // ranks may share the memory of their weights, and no one else may still read them
  {
    const WeightAverage::Applied applied(*average_);
    trainer_->publish();
    f();
    comm_.barrier();
  }
  trainer_->publish();
}

}  // namespace weft
