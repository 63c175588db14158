#include "apps/shared/training.h"

#include <algorithm>

#include "collectives/agreement.h"
#include "collectives/debug.h"
#include "collectives/ops.h"
#include "collectives/spreads.h"
#include "collectives/transports/self.h"
#include "engine/ops/elementwise.h"

namespace weft {

// As many as common numbers of ranks divide.
constexpr int64_t exact_blocks = 24;

Training::Training(const std::vector<ParameterGroup>& groups, const Launch& rank, const Options& options)
    : comm_(rank.comm),
      alone_(connect_self()),
      parameters_(parameters_of(groups)),
      blocks_(options.accumulate * (options.fast_reductions || options.zero == 3 ? 1 : exact_blocks)) {
  if (options.zero == 3) {
    sharded_ = std::make_unique<Sharded>(groups, comm_);
  } else {
    parallel_ = std::make_unique<DataParallel>(groups, comm_, DataParallel::Options{static_cast<int>(options.zero)});
    if (!options.fast_reductions) exact_ = std::make_unique<ExactGradients>(parameters_, comm_);
  }
}

Layer& Training::layer(const std::string& name, Layer& layer) {
  if (!sharded_) return layer;
  return *units_.emplace_back(std::make_unique<ShardedLayer>(name, layer, *sharded_));
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

Gradients& Training::gradients() {
  if (exact_) return exact_->gradients();
  return sharded_ ? sharded_->gradients() : parallel_->gradients();
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

Tensor Training::gradient(const Var& loss, const Parameter& by) {
  if (sharded_) return sharded_->gradient(loss, by);
  return loss.tape()->gradient(loss, {loss.tape()->watch(by)})[0].value();
}

Var Training::watch(Tape& tape, Parameter& parameter) {
  if (sharded_) {
    const auto values = [&parameter](const Var& beside) { return use(beside, parameter) * 1; };
    const Var on_tape = tape.constant(Tensor::zeros({}, parameter.value.dtype(), parameter.value.device()));
    return sharded_->run(sharded_->unit({&parameter}), on_tape, values);
  }
  const Var watched = tape.watch(parameter);
  return exact_ ? as_invariant(watched, comm_) : watched;
}

void Training::step(double rate) {
  if (sharded_) {
    sharded_->step(rate);
    return;
  }
  if (debug_is_asked()) {
    std::vector<NamedTensor> values;
    for (const Parameter* parameter : parameters_) values.push_back({parameter->name, parameter->value});
    expect_agreement("debug: a step", values, comm_);
  }
  if (exact_) exact_->hand_over(parallel_->gradients());
  parallel_->step(rate);
}

// The function works on a copy, since ranks may have the parameters in the same memory. Then one of them writes at a
// time, the others if they still need to.
void Training::change(Parameter& parameter, const std::function<void()>& f) {
  const Tensor before = sharded_ ? sharded_->whole(parameter) : parameter.value.clone();
  Tensor kept = std::exchange(parameter.value, before.clone());
  f();
  const Tensor after = std::exchange(parameter.value, kept);
  if (after.values() == before.values()) return;
  if (sharded_) return sharded_->set(parameter, after);
  comm_.barrier();
  if (comm_.rank().value == 0) kept.copy_from(after);
  comm_.barrier();
  if (kept.values() != after.values()) kept.copy_from(after);
}

}  // namespace weft
