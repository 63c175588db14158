// SPDX-License-Identifier: Apache-2.0
// Collectives in two halves by messages. Starting one announces the call, and sends what other ranks get of this rank's
// tensor at first. What this rank gets is received when all ranks are known to be in the same call; that, and the steps
// after it, happen whenever the rank waits or asks whether the call is ready.
#include <algorithm>
#include <exception>
#include <optional>

#include "weft/collectives/transports/mpi/mpi_progress.h"

namespace weft {

class MpiGroup::Started final : public Transport::Request {
 public:
  // If this rank exposes all bytes to all, it knows only later how many others expose.
  Started(MpiGroup& group, const Call& call, Tensor mine, Tensor result, size_t longest, MessageSteps steps,
          bool exposes_all)
      : group_(group),
        call_(call),
        mine_(std::move(mine)),
        result_(std::move(result)),
        steps_(std::move(steps)),
        exposes_all_(exposes_all),
        tag_(group.tag_of_started()),
        agreement_(group, call, true, {mine_.data<std::byte>(), mine_.bytes()}, longest) {
    group.unfinished()->add(*this);
    if (steps_.steps.empty()) return;
    for (const auto& [peer, piece] : steps_.steps[0].sends)
      group.state_->outbox->send(mine_, piece.bytes, peer, tag_, group.state_->wire);
  }
  // Other ranks need what this one folds, and what was sent to it must be received, even if it reads nothing.
  ~Started() override {
    if (!done_ && !std::uncaught_exceptions()) complete(nullptr);
    group_.unfinished()->remove(*this);
  }
  // What it calls may wait, and a rank that waits goes on with all unfinished calls, so this must not begin again.
  bool ready() override {
    if (busy_) return false;
    busy_ = true;
    if (!progress_ && agreement_.arrived()) agree();
    const bool is_ready = progress_ && progress_->go_on();
    busy_ = false;
    return is_ready;
  }
  void finish(Read read) override {
    const bool waits = !ready();  // if not, this may be part of another wait, whose call is the one to report
    if (waits) group_.begin(call_);
    complete(&read);
    if (waits) group_.end();
  }

 private:
  void agree() {
    const std::vector<size_t> sizes = agreement_.sizes();
    if (exposes_all_)
      steps_ = exposing_steps(group_.taker(*std::max_element(sizes.begin(), sizes.end())), sizes, false);
    if (!steps_.steps.empty()) steps_.steps[0].sends.clear();  // these have been sent
    Tensor board({static_cast<int64_t>(steps_.board)}, DType::u8);
    std::byte* const result = result_.defined() ? result_.mutate<std::byte>() : nullptr;
    progress_.emplace(group_, std::move(steps_),
                      Progress::Memories{mine_.data<std::byte>(), agreement_.bytes(), result, board.mutate<std::byte>(),
                                         mine_, board},
                      tag_);
  }
  void complete(const Read* read) {
    busy_ = true;
    if (!progress_) agree();
    progress_->complete(read);
    busy_ = false, done_ = true;
  }

  MpiGroup& group_;
  const Call call_;
  const Tensor mine_;
  Tensor result_;
  MessageSteps steps_;
  const bool exposes_all_;
  const int tag_;
  Agreement agreement_;
  std::optional<Progress> progress_;  // once the ranks are known to be in the same call
  bool busy_ = false, done_ = false;
};

std::unique_ptr<Transport::Request> MpiGroup::started(const Call& requested, Tensor mine, Tensor result, size_t longest,
                                                      MessageSteps steps, bool exposes_all) {
  Call call = requested;
  call.sequence = ++state_->calls;
  begin(call);
  if (!mine.unshared()) mine = mine.clone();
  auto pending = std::make_unique<Started>(*this, call, std::move(mine), std::move(result), longest, std::move(steps),
                                           exposes_all);
  end();
  return pending;
}

std::unique_ptr<Transport::Request> MpiGroup::start(const Call& call, Tensor mine, size_t longest, Ranges ranges) {
  std::vector<size_t> sizes(static_cast<size_t>(size()), longest);
  sizes[static_cast<size_t>(rank())] = mine.bytes();
  const bool announced = longest <= small_call, exposes_all = ranges.all() && !announced;
  const StepTaker whole = taker(longest);
  return started(call, std::move(mine), {}, longest,
                 announced     ? steps_with_the_calls(whole, ranges, longest, sizeof(Announcement))
                 : exposes_all ? exposing_steps(whole, sizes, false)
                               : direct_steps(whole, ranges),
                 exposes_all);
}

std::unique_ptr<Transport::Request> MpiGroup::start_reduction(const Call& call, Tensor mine, Tensor result,
                                                              const Reduction& reduction) {
  const size_t bytes = result.bytes();
  const Way way = way_of(reduction.to_all ? Movement::sum : Movement::sums, bytes);
  if (reduction.slices.empty() && (way == Way::in_slices || way == Way::in_halves))
    if (Readers readers(size(), reduction.reads); readers.add())
      return started(call, std::move(mine), std::move(result), bytes,
                     sum_steps(taker(bytes), bytes, std::move(readers), reduction.fold, false), false);
  return Transport::start_reduction(call, std::move(mine), std::move(result), reduction);
}

}  // namespace weft
