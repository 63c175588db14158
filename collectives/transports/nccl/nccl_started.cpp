// SPDX-License-Identifier: Apache-2.0
// Collectives in two halves on cards. Starting one tells the other ranks by the host transport, and does not wait for
// them. Once all ranks are known to have started it, each enqueues it: whenever it asks, waits or makes another call.
//
// The cards of a group must get its calls in the same order, so they get them in the order in which ranks make them. A
// call that waits for all ranks comes after all that were started before it, which all ranks have started by then.
#include "weft/collectives/transports/nccl/nccl_started.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "weft/collectives/unfinished.h"

namespace weft {
namespace {

// What the caller holds of a started call. Its group holds it, too, until it is enqueued.
class Held final : public Transport::Request {
 public:
  explicit Held(std::shared_ptr<Transport::Request> call) : call_(std::move(call)) {}
  bool ready() override { return call_->ready(); }
  void finish(Transport::Read read) override { call_->finish(read); }

 private:
  const std::shared_ptr<Transport::Request> call_;
};

}  // namespace

// The card may begin when this rank's work up to here is done, so the memory for the result is taken here, too.
NcclGroup::StartedCall::StartedCall(NcclGroup& group, const Call& call, Tensor mine, size_t longest,
                                    const Ranges& ranges)
    : group_(group),
      call_(call),
      mine_(std::move(mine)),
      longest_(longest),
      of_peers_(ranges.of_peers.begin(), ranges.of_peers.end()),
      by_peers_(ranges.by_peers.begin(), ranges.by_peers.end()),
      sizes_(group.sizes_.size()) {
  size_t total = ranges.all() ? sizes_.size() * longest : 0;
  for (const Range& range : of_peers_) total += range.size();
  all_ = group.workspace(total);
  const Announcement announced = group.announce(mine_.bytes(), longest);
  after_ = group.exchange_->mark();
  Tensor told({static_cast<int64_t>(announced.bytes().size())}, DType::u8);
  std::copy_n(announced.bytes().data(), announced.bytes().size(), told.mutate<std::byte>());
  agreement_ = group.host_->start(call, std::move(told), announced.bytes().size());
}

// The memory returns to the pool after the data have arrived.
NcclGroup::StartedCall::~StartedCall() {
  if (enqueued_) group_.exchange_->await(ticket_);
}

bool NcclGroup::StartedCall::ready() {
  const auto held = shared_from_this();  // if nobody else does, the group drops it with its last step
  group_.go_on_with_started();
  return enqueued_ && group_.exchange_->is_done(ticket_);
}

void NcclGroup::StartedCall::finish(Read read) {
  while (!enqueued_) group_.take_step();
  group_.exchange_->await(ticket_);
  const size_t received = of_peers_.empty() ? longest_ : Ranges{of_peers_, {}}.longest_of_peers();
  if (received > 0) read({0, received, peers_, begins_});
}

bool NcclGroup::StartedCall::must_wait() const {
  return agreement_ ? !agreement_->ready() : !group_.exchange_->is_idle();
}

bool NcclGroup::StartedCall::take_step() {
  if (agreement_) {
    bool same = true;
    std::exchange(agreement_, nullptr)->finish([&](const Part& part) {
      same = group_.read_announced(part, longest_, sizes_);
    });
    group_.conclude(call_, longest_, same);
  } else if (ticket_ == 0) {
    enqueue();
  } else {
    group_.exchange_->settle();
    enqueued_ = true;
  }
  return enqueued_;
}

void NcclGroup::StartedCall::enqueue() {
  const auto* const bytes = mine_.data<std::byte>();
  if (of_peers_.empty()) {
    ticket_ = group_.gather(call_, after_, bytes, sizes_, {0, longest_}, all_.mutate<std::byte>());
    group_.begins_.assign(group_.begins_.size(), 0);
  } else {
    ticket_ = group_.swap(call_, after_, bytes, {of_peers_, by_peers_}, 0, std::max(longest_, size_t{1}),
                          all_.mutate<std::byte>());
  }
  peers_ = group_.peers_, begins_ = group_.begins_;
}

std::unique_ptr<Transport::Request> NcclGroup::start(const Call& call, Tensor mine, size_t longest, Ranges ranges) {
  if (!on_card(call)) return host_->start(call, std::move(mine), longest, ranges);
  while (started_.size() >= max_started) take_step();  // the host has no room for more, even if they were dropped
  if (!mine.unshared()) mine = mine.clone();
  const auto started = std::make_shared<StartedCall>(*this, call, std::move(mine), longest, ranges);
  started_.push_back(started);
  unfinished()->add(*started);
  unfinished()->go_on();
  return std::make_unique<Held>(started);
}

void NcclGroup::go_on_with_started() {
  while (!taking_step_ && !started_.empty() && !started_.front()->must_wait()) take_step();
}

// It may wait, and a rank that waits goes on with all that is unfinished, so this must not begin again.
void NcclGroup::take_step() {
  taking_step_ = true;
  const bool last = started_.front()->take_step();
  taking_step_ = false;
  if (!last) return;
  const auto enqueued = std::move(started_.front());  // destroyed when the queue is in order again
  started_.pop_front();
  unfinished()->remove(*enqueued);
}

// Others may need what this rank has started and dropped, unless it fails.
NcclGroup::~NcclGroup() {
  try {
    while (!std::uncaught_exceptions() && !taking_step_ && !started_.empty()) take_step();
  } catch (const std::exception&) {  // the next call reports it
  }
  for (const auto& call : started_) unfinished()->remove(*call);
}

}  // namespace weft
