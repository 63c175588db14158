// SPDX-License-Identifier: Apache-2.0
// Collectives in two halves by messages. Starting one announces the call, and sends other ranks what they read of this
// rank's bytes. What this rank reads is received when all ranks are known to be in the same call.
#include <algorithm>
#include <exception>

#include "weft/collectives/transports/mpi/mpi_group.h"

namespace weft {

class MpiGroup::PendingCall final : public Transport::Request {
 public:
  PendingCall(MpiGroup& group, const Call& call, Tensor mine, size_t longest, const Ranges& ranges);
  // Bytes that were sent to this rank must be received even if nobody reads them.
  ~PendingCall() override {
    group_.unfinished()->remove(*this);
    if (!received_ && !std::uncaught_exceptions()) receive();
  }
  bool ready() override;
  void finish(Read read) override;

 private:
  void post();  // begins to receive, once all ranks have announced the call
  void receive();

  MpiGroup& group_;
  const Call call_;
  const Tensor mine_;
  const size_t longest_;
  const int tag_;
  Agreement agreement_;
  std::vector<Range> of_peers_;  // empty: all bytes, until it is known how many
  std::vector<std::byte> staging_;
  std::vector<const std::byte*> peers_;
  std::vector<size_t> begins_;
  Wire::Requests requests_;
  bool posted_ = false, received_ = false;
};

MpiGroup::PendingCall::PendingCall(MpiGroup& group, const Call& call, Tensor mine, size_t longest, const Ranges& ranges)
    : group_(group),
      call_(call),
      mine_(std::move(mine)),
      longest_(longest),
      tag_(group.tag_of_started()),
      agreement_(group, call, true, {mine_.data<std::byte>(), mine_.bytes()}, longest),
      of_peers_(ranges.of_peers.begin(), ranges.of_peers.end()) {
  Outbox& outbox = *group.state_->outbox;
  group.unfinished()->add(*this);
  for (int r = 0; r < group.size() && longest_ > small_call; ++r) {
    const Range out = of_peers_.empty() ? Range{0, mine_.bytes()} : ranges.by_peers[static_cast<size_t>(r)];
    if (r != group.rank()) outbox.send(mine_, out, r, tag_, group.state_->wire);
  }
}

void MpiGroup::PendingCall::post() {
  posted_ = true;
  const std::vector<size_t> sizes = agreement_.sizes();
  if (of_peers_.empty())
    for (const size_t size : sizes) of_peers_.push_back({0, size});
  const auto me = static_cast<size_t>(group_.rank());
  size_t total = 0;
  for (size_t r = 0; r < sizes.size(); ++r) total += r == me || longest_ <= small_call ? 0 : of_peers_[r].size();
  staging_.resize(total);
  std::byte* place = staging_.data();
  for (size_t r = 0; r < sizes.size(); ++r) {
    const Range in = of_peers_[r];
    begins_.push_back(in.first);
    if (r == me || longest_ <= small_call) {
      peers_.push_back(r == me ? mine_.data<std::byte>() + in.first : agreement_.bytes_of(r) + in.first);
      continue;
    }
    peers_.push_back(place);
    group_.state_->wire.receive(place, in.size(), static_cast<int>(r), tag_, requests_);
    place += in.size();
  }
}

void MpiGroup::PendingCall::receive() {
  received_ = true;
  if (!posted_) post();
  group_.finish(requests_);
}

bool MpiGroup::PendingCall::ready() {
  if (!posted_ && agreement_.arrived()) post();
  int done = posted_;
  if (done) MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
  return done != 0;
}

void MpiGroup::PendingCall::finish(Read read) {
  const bool waits = !ready();  // if not, this may be part of another wait, whose call is the one to report
  if (waits) group_.begin(call_);
  receive();
  read({0, Ranges{of_peers_, {}}.longest_of_peers(), peers_, begins_});
  if (waits) group_.end();
}

std::unique_ptr<Transport::Request> MpiGroup::start(const Call& requested, Tensor mine, size_t longest, Ranges ranges) {
  Call call = requested;
  call.sequence = ++state_->calls;
  begin(call);
  if (!mine.unshared()) mine = mine.clone();
  auto pending = std::make_unique<PendingCall>(*this, call, std::move(mine), longest, ranges);
  end();
  return pending;
}

}  // namespace weft
