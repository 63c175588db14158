// SPDX-License-Identifier: Apache-2.0
// Collectives in two halves by messages. Starting one announces the call and sends this rank's bytes to all others.
#include <algorithm>
#include <exception>

#include "weft/collectives/transports/mpi/mpi_group.h"

namespace weft {
namespace {

// Messages of send and receive have tag 0. Every MPI library has tags up to this one.
constexpr uint64_t max_tags = 32767;

}  // namespace

class MpiGroup::PendingCall final : public Transport::Started {
 public:
  PendingCall(MpiGroup& group, const Call& call, Tensor mine, size_t longest);
  // Bytes that were sent to this rank must be received even if nobody reads them.
  ~PendingCall() override {
    if (!received_ && !std::uncaught_exceptions()) receive();
  }
  void finish(Read read) override;

 private:
  std::vector<const std::byte*> receive();

  MpiGroup& group_;
  const Call call_;
  const Tensor mine_;
  const size_t longest_;
  const int tag_;
  Agreement agreement_;
  bool received_ = false;
};

MpiGroup::PendingCall::PendingCall(MpiGroup& group, const Call& call, Tensor mine, size_t longest)
    : group_(group),
      call_(call),
      mine_(std::move(mine)),
      longest_(longest),
      tag_(static_cast<int>(1 + group.state_->started++ % (max_tags - 1))),
      agreement_(group, call, true, mine_.bytes(), longest) {
  Outbox& outbox = *group.state_->outbox;
  outbox.release_delivered();
  for (int r = 0; r < group.size(); ++r) {
    if (r == group.rank()) continue;
    Outbox::Message& message = outbox.messages.emplace_back();
    message.tensor = mine_;
    MPI_Isend(mine_.data(), as_count(mine_.bytes()), MPI_BYTE, r, tag_, group.state_->comm, &message.request);
  }
}

// Receives the bytes of all other ranks in staging memory, and returns where the bytes of each rank are.
std::vector<const std::byte*> MpiGroup::PendingCall::receive() {
  received_ = true;
  const std::vector<size_t> sizes = agreement_.sizes();
  group_.staging_.resize(std::max(group_.staging_.size(), sizes.size() * longest_));
  std::vector<const std::byte*> places;
  std::vector<MPI_Request> requests;
  for (size_t r = 0; r < sizes.size(); ++r) {
    std::byte* place = group_.staging_.data() + r * longest_;
    const bool own = static_cast<int>(r) == group_.rank();
    places.push_back(own ? mine_.data<std::byte>() : place);
    if (!own)
      MPI_Irecv(place, as_count(sizes[r]), MPI_BYTE, static_cast<int>(r), tag_, group_.state_->comm,
                &requests.emplace_back());
  }
  for (MPI_Request& request : requests) group_.finish(request);
  return places;
}

void MpiGroup::PendingCall::finish(Read read) {
  group_.begin(call_);
  const std::vector<const std::byte*> places = receive();
  read({0, longest_, places});
  group_.end();
}

std::unique_ptr<Transport::Started> MpiGroup::start(const Call& requested, Tensor mine, size_t longest) {
  Call call = requested;
  call.sequence = ++state_->calls;
  begin(call);
  auto pending = std::make_unique<PendingCall>(*this, call, mine.unshared() ? std::move(mine) : mine.clone(), longest);
  end();
  return pending;
}

}  // namespace weft
