// SPDX-License-Identifier: Apache-2.0
// Reductions in two halves by messages. As in `fold_for_each`, every rank folds one slice of the ranks' bytes for all
// readers, and sends each its fold. Slices leave when the call is started; everything else happens whenever the rank
// waits or asks whether the call is ready.
#include <algorithm>
#include <exception>
#include <optional>

#include "weft/collectives/fold.h"
#include "weft/collectives/transports/mpi/mpi_group.h"

namespace weft {

class MpiGroup::PendingSum final : public Transport::Request {
 public:
  PendingSum(MpiGroup& group, const Call& call, Tensor mine, Tensor result, Readers readers, const Fold& fold);
  // Other ranks need the slice that this one folds, even if this one reads nothing.
  ~PendingSum() override {
    if (step_ != Step::done && !std::uncaught_exceptions()) complete();
    group_.unfinished()->remove(*this);
  }
  bool ready() override {
    while (!stepping_ && step_ != Step::done && need_not_wait()) take_step();
    return step_ == Step::done;
  }
  void finish(Read) override {
    group_.begin(call_);
    complete();
    group_.end();
  }

 private:
  enum class Step : uint8_t { agreeing, folding, gathering, done };
  Range slice(int r) const {
    return Range{0, result_.bytes()}.slice(static_cast<size_t>(r), static_cast<size_t>(group_.size()));
  }
  int fold_of(int reader) const { return readers_.fold_of[static_cast<size_t>(reader)]; }
  bool is_read(int rank) const { return readers_.is_read[static_cast<size_t>(rank)]; }
  bool need_not_wait();
  void take_step();
  void complete() {
    while (step_ != Step::done) take_step();
  }
  void receive(std::byte* place, size_t bytes, int from);
  void receive_terms();
  void send_folds();

  MpiGroup& group_;
  const Call call_;
  const Tensor mine_;
  Tensor result_;
  const Readers readers_;
  const Fold fold_;
  const int tag_;
  Agreement agreement_;
  std::vector<std::byte> staging_;
  std::vector<const std::byte*> peers_;
  Wire::Requests requests_;
  Step step_ = Step::agreeing;
  bool stepping_ = false;
};

MpiGroup::PendingSum::PendingSum(MpiGroup& group, const Call& call, Tensor mine, Tensor result, Readers readers,
                                 const Fold& fold)
    : group_(group),
      call_(call),
      mine_(std::move(mine)),
      result_(std::move(result)),
      readers_(std::move(readers)),
      fold_(fold),
      tag_(group.tag_of_started()),
      agreement_(group, call, true, {mine_.data<std::byte>(), mine_.bytes()}, result_.bytes()) {
  Outbox& outbox = *group.state_->outbox;
  group.unfinished()->add(*this);
  for (int r = 0; r < group.size() && is_read(group.rank()); ++r)
    if (r != group.rank()) outbox.send(mine_, slice(r), r, tag_, group.state_->wire);
}

bool MpiGroup::PendingSum::need_not_wait() {
  if (step_ == Step::agreeing) return agreement_.arrived();
  int done = 0;
  MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
  return done != 0;
}

// It may wait, and a rank that waits goes on with all unfinished calls, so this must not begin again.
void MpiGroup::PendingSum::take_step() {
  stepping_ = true;
  if (step_ == Step::agreeing) {
    agreement_.sizes();
    receive_terms();
    step_ = Step::folding;
  } else {
    group_.finish(requests_);
    if (step_ == Step::folding) send_folds();
    step_ = step_ == Step::folding ? Step::gathering : Step::done;
  }
  stepping_ = false;
}

void MpiGroup::PendingSum::receive(std::byte* place, size_t bytes, int from) {
  group_.state_->wire.receive(place, bytes, from, tag_, requests_);
}

void MpiGroup::PendingSum::receive_terms() {
  const int me = group_.rank();
  const Range own = slice(me);
  staging_.resize(own.size() * static_cast<size_t>(group_.size()));
  for (int r = 0; r < group_.size(); ++r) {
    std::byte* const place = staging_.data() + own.size() * static_cast<size_t>(r);
    peers_.push_back(r == me ? mine_.data<std::byte>() + own.first : place);
    if (r != me && is_read(r)) receive(place, own.size(), r);
  }
}

// The folds are not in `result_`, which may change while they are still on their way.
void MpiGroup::PendingSum::send_folds() {
  const int me = group_.rank();
  const Range own = slice(me);
  std::vector<Tensor> folded;
  for (size_t i = 0; i < readers_.folds.size(); ++i) {
    Tensor& sum = folded.emplace_back(Shape{static_cast<int64_t>(own.size() / size_of(fold_.dtype))}, fold_.dtype);
    readers_.fold(i, fold_).write({own.first, own.last, peers_}, sum.mutate<std::byte>());
  }
  const auto folded_for = [&](int r) { return folded[static_cast<size_t>(fold_of(r))]; };
  auto* const result = result_.mutate<std::byte>();
  for (int r = 0; r < group_.size(); ++r) {
    if (r != me && fold_of(r) >= 0)
      group_.state_->outbox->send(folded_for(r), {0, own.size()}, r, tag_, group_.state_->wire);
    if (r != me && fold_of(me) >= 0) receive(result + slice(r).first, slice(r).size(), r);
  }
  if (fold_of(me) >= 0) std::copy_n(folded_for(me).data<std::byte>(), own.size(), result + own.first);
}

std::unique_ptr<Transport::Request> MpiGroup::start_reduction(const Call& requested, Tensor mine, Tensor result,
                                                              const Reduction& reduction) {
  const Movement movement = reduction.to_all ? Movement::sum : Movement::sums;
  std::optional<Readers> readers;
  if (const Way way = way_of(movement, result.bytes());
      reduction.slices.empty() && (way == Way::in_slices || way == Way::in_halves))
    readers.emplace(size(), reduction);
  if (!readers || !readers->add())
    return Transport::start_reduction(requested, std::move(mine), std::move(result), reduction);
  Call call = requested;
  call.sequence = ++state_->calls;
  begin(call);
  if (!mine.unshared()) mine = mine.clone();
  auto pending = std::make_unique<PendingSum>(*this, call, std::move(mine), std::move(result), std::move(*readers),
                                              reduction.fold);
  end();
  return pending;
}

}  // namespace weft
