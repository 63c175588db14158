// Meetings in two halves by messages: to start one is to announce it and to send everybody what one shows.
#include <algorithm>
#include <exception>

#include "collectives/transports/mpi_group.h"

namespace weft {
namespace {

// Messages of send and receive have tag 0; every MPI has tags up to this one.
constexpr uint64_t most_tags = 32767;

}  // namespace

class MpiGroup::Posting final : public Transport::Started {
 public:
  Posting(MpiGroup& group, const Call& call, Tensor mine, size_t longest);
  // What was sent to a rank that drops its part has to be received all the same.
  ~Posting() override {
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

MpiGroup::Posting::Posting(MpiGroup& group, const Call& call, Tensor mine, size_t longest)
    : group_(group),
      call_(call),
      mine_(std::move(mine)),
      longest_(longest),
      tag_(static_cast<int>(1 + group.state_->started++ % (most_tags - 1))),
      agreement_(group, call, true, mine_.bytes(), longest) {
  Outbox& outbox = *group.state_->outbox;
  outbox.forget_delivered();
  for (int r = 0; r < group.size(); ++r) {
    if (r == group.rank()) continue;
    Outbox::Letter& letter = outbox.letters.emplace_back();
    letter.tensor = mine_;
    MPI_Isend(mine_.data(), as_count(mine_.bytes()), MPI_BYTE, r, tag_, group.state_->comm, &letter.request);
  }
}

// Everybody's bytes, in staging memory but for my own.
std::vector<const std::byte*> MpiGroup::Posting::receive() {
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

void MpiGroup::Posting::finish(Read read) {
  group_.begin(call_);
  const std::vector<const std::byte*> places = receive();
  read({0, longest_, places});
  group_.end();
}

std::unique_ptr<Transport::Started> MpiGroup::start(const Call& asked, Tensor mine, size_t longest) {
  Call call = asked;
  call.sequence = ++state_->calls;
  begin(call);
  auto posting = std::make_unique<Posting>(*this, call, mine.unshared() ? std::move(mine) : mine.clone(), longest);
  end();
  return posting;
}

}  // namespace weft
