// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/nccl/nccl_group.h"

#include <algorithm>
#include <cstring>

#include "weft/collectives/transports/mpi/library_reduction.h"

namespace weft {
namespace {

constexpr size_t alignment = 64;

// Rounds down to a multiple of the alignment, but not to zero.
size_t aligned(size_t bytes) { return std::max(bytes / alignment * alignment, alignment); }

}  // namespace

NcclGroup::NcclGroup(std::unique_ptr<Transport> host, Connect connect, std::string library, Where where)
    : host_(std::move(host)), connect_(std::move(connect)), library_(std::move(library)), where_(where) {
  const auto n = static_cast<size_t>(size());
  sizes_.resize(n), counts_.resize(n), peers_.resize(n), cuts_.resize(n + 1);
}

void NcclGroup::agree(const Call& call, size_t mine, size_t longest) {
  const uint64_t my[] = {mine, longest};
  bool same = true;
  host_->expose(call, std::as_bytes(std::span(my)), sizeof my, [&](const Part& part) {
    for (size_t r = 0; r < part.peers.size(); ++r) {
      uint64_t their[2];
      std::memcpy(their, part.peers[r], sizeof their);
      sizes_[r] = their[0];
      same &= their[1] == longest;
    }
  });
  if (!same)
    throw Fault(exit_codes::mismatch, "collective mismatch: the ranks expect different numbers of bytes in " +
                                          call.text() + "; this one " + weft::text(longest));
}

CardExchange& NcclGroup::exchange() {
  if (!exchange_) exchange_ = connect_(*host_);
  return *exchange_;
}

Tensor NcclGroup::workspace(size_t bytes) const {
  return Tensor({static_cast<int64_t>(bytes)}, DType::u8, where_.device);
}

void NcclGroup::set_peers(std::byte* packed) {
  for (size_t r = 0; r < counts_.size(); packed += counts_[r++]) peers_[r] = packed;
}

CardExchange::Ticket NcclGroup::gather(const Call& call, const std::byte* mine, size_t first, size_t last,
                                       std::byte* to) {
  for (size_t r = 0; r < sizes_.size(); ++r) counts_[r] = std::min(last, sizes_[r]) - std::min(first, sizes_[r]);
  set_peers(to);
  return exchange().gather(call, mine, counts_, to);
}

void NcclGroup::expose(const Call& call, Bytes mine, size_t longest, Read read) {
  if (!on_card(call)) return host_->expose(call, mine, longest, read);
  agree(call, mine.size(), longest);
  const auto n = static_cast<size_t>(size());
  const size_t length = std::min(aligned(where_.workspace_bytes / n), longest);
  Tensor all = workspace(n * length);
  for (size_t first = 0; first < longest; first += length) {
    const size_t last = std::min(first + length, longest);
    exchange().await(gather(call, mine.data() + std::min(first, mine.size()), first, last, all.mutate<std::byte>()));
    read({first, last, peers_});
  }
}

// A started gather. It awaits its ticket even if it is not finished, so that its memory returns to the pool only after
// the data have arrived.
class NcclGroup::Gathering : public Started {
 public:
  Gathering(NcclGroup& group, const Call& call, Tensor mine, size_t longest)
      : group_(group), mine_(std::move(mine)), longest_(longest) {
    size_t total = 0;
    for (const size_t size : group.sizes_) total += size;
    all_ = group.workspace(total);
    ticket_ = group.gather(call, mine_.data<std::byte>(), 0, longest, all_.mutate<std::byte>());
    peers_ = group.peers_;
  }
  Gathering(const Gathering&) = delete;
  ~Gathering() override { group_.exchange().await(ticket_); }

  void finish(Read read) override {
    group_.exchange().await(ticket_);
    if (longest_ > 0) read({0, longest_, peers_});
  }

 private:
  NcclGroup& group_;
  const Tensor mine_;
  Tensor all_;
  const size_t longest_;
  CardExchange::Ticket ticket_;
  std::vector<const std::byte*> peers_;
};

std::unique_ptr<Transport::Started> NcclGroup::start(const Call& call, Tensor mine, size_t longest) {
  if (!on_card(call)) return host_->start(call, std::move(mine), longest);
  agree(call, mine.bytes(), longest);
  if (!mine.unshared()) mine = mine.clone();
  return std::make_unique<Gathering>(*this, call, std::move(mine), longest);
}

// For each part, every rank receives its slice from all ranks, folds these into the result, and then all ranks gather
// the folded slices. A part of `mine` is not read after its slices have been folded, so `result` may be the same
// memory.
void NcclGroup::combine(const Call& call, Bytes mine, std::span<std::byte> result, Fold fold) {
  if (!on_card(call)) return host_->combine(call, mine, result, fold);
  agree(call, mine.size(), mine.size());
  const auto n = static_cast<size_t>(size()), me = static_cast<size_t>(rank());
  const size_t length = std::min(aligned(where_.workspace_bytes / n) * n, mine.size());
  Tensor received = workspace(length + n * alignment);
  for (size_t first = 0; first < mine.size(); first += length) {
    const size_t part = std::min(length, mine.size() - first);
    const size_t each = (part + n * alignment - 1) / (n * alignment) * alignment;
    for (size_t r = 0; r <= n; ++r) cuts_[r] = std::min(r * each, part);
    exchange().await(exchange().swap(call, mine.data() + first, cuts_, received.mutate<std::byte>()));
    for (size_t r = 0; r < n; ++r) counts_[r] = cuts_[me + 1] - cuts_[me];
    set_peers(received.mutate<std::byte>());
    const size_t begin = first + cuts_[me], end = first + cuts_[me + 1];
    peers_[me] = mine.data() + begin;
    if (begin < end) fold({begin, end, peers_}, result.data() + begin);
    for (size_t r = 0; r < n; ++r) counts_[r] = cuts_[r + 1] - cuts_[r];
    exchange().await(exchange().gather(call, result.data() + begin, counts_, result.data() + first));
  }
}

bool NcclGroup::combine_in_any_order(const Call& call, Bytes mine, std::span<std::byte> result) {
  if (!on_card(call)) return host_->combine_in_any_order(call, mine, result);
  if (!library_reduces(call)) return false;
  agree(call, mine.size(), mine.size());
  if (!mine.empty()) exchange().await(exchange().reduce(call, mine, result.data()));
  return true;
}

std::unique_ptr<Transport> NcclGroup::split(int color, int key, Site site) {
  std::unique_ptr<Transport> group = host_->split(color, key, site);
  if (!group) return nullptr;
  return std::make_unique<NcclGroup>(std::move(group), connect_, library_, where_);
}

}  // namespace weft
