// SPDX-License-Identifier: Apache-2.0
// Collectives in two halves on cards. Starting one tells the other ranks by the host transport, and does not wait for
// them. Once all ranks are known to have started it, they agree on its number, and each enqueues it in its turn:
// whenever it asks, waits or makes another call. No rank proposes a number before, since others may never start the
// call, and then it would be in the way of all calls after it.
#include "weft/collectives/transports/nccl/nccl_started.h"

#include <algorithm>
#include <cstring>
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
  while (!enqueued_) group_.take_step(*group_.started_.front());
  group_.exchange_->await(ticket_);
  const size_t received = of_peers_.empty() ? longest_ : Ranges{of_peers_, {}}.longest_of_peers();
  if (received > 0) read({0, received, peers_, begins_});
}

bool NcclGroup::StartedCall::must_wait() const {
  if (taking_step_) return true;
  return agreement_ ? !agreement_->ready() : !place_->is_first() || !group_.exchange_->is_idle();
}

// It may wait, and a rank that waits goes on with all that is unfinished, so this must not begin again.
void NcclGroup::StartedCall::take_step() {
  const bool within = std::exchange(taking_step_, true);
  if (!place_)
    propose();
  else if (agreement_)
    agree();
  else if (place_->become_first(); group_.address_)
    group_.connect(call_);
  else if (ticket_ == 0)
    enqueue();
  else
    leave();
  taking_step_ = within;
}

void NcclGroup::StartedCall::leave() {
  group_.exchange_->settle();
  place_.reset();
  enqueued_ = true;
}

void NcclGroup::StartedCall::propose() {
  std::exchange(agreement_, nullptr)->finish([&](const Part& part) {
    group_.read_announced(call_, part, longest_, sizes_);
  });
  place_.emplace(*group_.order_, this);
  const Number number = place_->number();
  Tensor told({sizeof number}, DType::u8);
  std::memcpy(told.mutate<std::byte>(), &number, sizeof number);
  agreement_ = group_.numbers_->start(call_, std::move(told), sizeof number);
}

void NcclGroup::StartedCall::agree() {
  Number largest = 0;
  std::exchange(agreement_, nullptr)->finish([&](const Part& part) { largest = largest_of(part); });
  place_->agree(largest);
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
  // The host has no room for more, even if they were dropped.
  while (started_.size() >= max_started) take_step(*started_.front());
  if (!mine.unshared()) mine = mine.clone();
  const auto started = std::make_shared<StartedCall>(*this, call, std::move(mine), longest, ranges);
  started_.push_back(started);
  unfinished()->add(*started);
  unfinished()->go_on();
  return std::make_unique<Held>(started);
}

// Ranks propose numbers in the order of starts.
void NcclGroup::go_on_with_started() {
  for (size_t i = 0; i < started_.size();) {
    StartedCall& call = *started_[i];
    if (!call.must_wait())
      take_step(call);  // with the last one, the next call takes its place
    else if (call.has_proposed())
      ++i;
    else
      return;
  }
}

// Calls leave in the order in which they were started, since every rank proposes larger numbers for later ones.
void NcclGroup::take_step(StartedCall& call) {
  call.take_step();
  if (!call.is_enqueued()) return;
  const auto enqueued = std::move(started_.front());  // destroyed when the queue is in order again
  started_.pop_front();
  unfinished()->remove(*enqueued);
}

// Others may need what this rank has started and dropped, unless it fails.
NcclGroup::~NcclGroup() {
  try {
    while (!std::uncaught_exceptions() && !started_.empty() && !started_.front()->is_taking_step())
      take_step(*started_.front());
  } catch (const std::exception&) {  // the next call reports it
  }
  for (const auto& call : started_) unfinished()->remove(*call);
}

}  // namespace weft
