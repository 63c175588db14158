// SPDX-License-Identifier: Apache-2.0
// Collectives in two halves by messages. Starting one announces the call, and sends what other ranks get of this rank's
// tensor at first. What this rank gets is received when all ranks are known to be in the same call; that, and the steps
// after it, happen whenever the rank waits or asks whether the call is ready.
#include <algorithm>
#include <exception>
#include <optional>

#include "weft/collectives/transports/mpi/mpi_progress.h"

namespace weft {

struct MpiGroup::Beginning {
  Tensor mine, result;
  size_t longest;
  MessageSteps steps;
  bool exposes_all = false;          // then the rank knows only later how many bytes others expose
  std::vector<Range> of_peers = {};  // what it reads of bytes that come with the calls; empty: all
};

class MpiGroup::Started final : public Transport::Request {
 public:
  Started(MpiGroup& group, const Call& call, Beginning begun)
      : group_(group),
        call_(call),
        begun_(std::move(begun)),
        tag_(group.tag_of_started()),
        agreement_(group, call, true, {begun_.mine.data<std::byte>(), begun_.mine.bytes()}, begun_.longest) {
    group.unfinished()->add(*this);
    if (begun_.steps.steps.empty()) return;
    for (const auto& [peer, piece] : begun_.steps.steps[0].sends)
      group.state_->outbox->send(begun_.mine, piece.bytes, peer, tag_, group.state_->wire);
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
    if (begun_.longest <= small_call) group_.read_announced(agreement_, begun_.longest, {begun_.of_peers, {}}, read);
    if (waits) group_.end();
  }

 private:
  void agree() {
    const std::vector<size_t> sizes = agreement_.sizes();
    MessageSteps steps =
        begun_.exposes_all ? exposing_steps(group_.taker(begun_.longest), sizes, false) : std::move(begun_.steps);
    if (!steps.steps.empty()) steps.steps[0].sends.clear();  // these have been sent
    Tensor board({static_cast<int64_t>(steps.board)}, DType::u8);
    std::byte* const result = begun_.result.defined() ? begun_.result.mutate<std::byte>() : nullptr;
    progress_.emplace(
        group_, std::move(steps),
        Progress::Memories{begun_.mine.data<std::byte>(), result, board.mutate<std::byte>(), begun_.mine, board}, tag_);
  }
  void complete(const Read* read) {
    busy_ = true;
    if (!progress_) agree();
    progress_->complete(read);
    busy_ = false, done_ = true;
  }

  MpiGroup& group_;
  const Call call_;
  Beginning begun_;
  const int tag_;
  Agreement agreement_;
  std::optional<Progress> progress_;  // once the ranks are known to be in the same call
  bool busy_ = false, done_ = false;
};

std::unique_ptr<Transport::Request> MpiGroup::started(const Call& requested, Beginning begun) {
  Call call = requested;
  call.sequence = ++state_->calls;
  begin(call);
  if (!begun.mine.unshared()) begun.mine = begun.mine.clone();
  auto started = std::make_unique<Started>(*this, call, std::move(begun));
  end();
  return started;
}

std::unique_ptr<Transport::Request> MpiGroup::start(const Call& call, Tensor mine, size_t longest, Ranges ranges) {
  Beginning begun{std::move(mine), {}, longest, {}};
  if (longest <= small_call) {
    begun.of_peers.assign(ranges.of_peers.begin(), ranges.of_peers.end());
  } else if (ranges.all()) {
    std::vector<size_t> sizes(static_cast<size_t>(size()), longest);
    sizes[static_cast<size_t>(rank())] = begun.mine.bytes();
    begun.steps = exposing_steps(taker(longest), sizes, false);
    begun.exposes_all = true;
  } else {
    begun.steps = direct_steps(taker(longest), ranges);
  }
  return started(call, std::move(begun));
}

std::unique_ptr<Transport::Request> MpiGroup::start_reduction(const Call& call, Tensor mine, Tensor result,
                                                              const Reduction& reduction) {
  const size_t bytes = result.bytes();
  const Way way = way_of(reduction.to_all ? Movement::sum : Movement::some_sums, bytes);
  if (reduction.slices.empty() && (way == Way::in_slices || way == Way::by_halving))
    if (Readers readers(size(), reduction.reads); readers.add())
      return started(call, {std::move(mine), std::move(result), bytes,
                            sum_steps(taker(bytes), bytes, std::move(readers), reduction.fold, false)});
  return Transport::start_reduction(call, std::move(mine), std::move(result), reduction);
}

}  // namespace weft
