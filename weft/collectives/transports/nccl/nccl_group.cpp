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

// Whether all ranks gather equal blocks. They all know, since these verbs compare the counts of rows.
bool gathers_evenly(const Call& call, const Transport::Ranges& ranges) {
  return (call.verb == Verb::all_gather || call.verb == Verb::all_gather_v) && of_one_size(ranges.of_peers) &&
         ranges.longest_of_peers() > 0;
}

}  // namespace

NcclGroup::NcclGroup(std::unique_ptr<Transport> host, Connect connect, std::string library, Where where)
    : host_(std::move(host)), connect_(std::move(connect)), library_(std::move(library)), where_(where) {
  const auto n = static_cast<size_t>(size());
  sizes_.resize(n), counts_.resize(n), begins_.resize(n), slices_.resize(n), peers_.resize(n);
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

CardExchange::Ticket NcclGroup::swap(const Call& call, const std::byte* mine, const Ranges& ranges, size_t skipped,
                                     size_t part, std::byte* to) {
  const auto me = static_cast<size_t>(rank());
  const bool evenly = gathers_evenly(call, ranges);
  for (size_t r = 0; r < counts_.size(); ++r) {
    const Range in = ranges.of_peers[r].piece(skipped, part);
    begins_[r] = in.first;
    counts_[r] = r == me && !evenly ? 0 : in.size();
    slices_[r] = ranges.by_peers[r].piece(skipped, part);
  }
  set_peers(to);
  if (evenly) return exchange().gather(call, mine + begins_[me], counts_, to);
  peers_[me] = mine + begins_[me];
  return exchange().swap(call, mine, slices_, counts_, to);
}

void NcclGroup::exchange(const Call& call, Bytes mine, size_t longest, Ranges ranges, Read read) {
  if (!on_card(call)) return host_->exchange(call, mine, longest, ranges, read);
  agree(call, mine.size(), longest);
  const auto n = static_cast<size_t>(size());
  const size_t length = std::min(aligned(where_.workspace_bytes / n), longest);
  Tensor all = workspace(n * length);
  if (ranges.all()) {
    for (size_t first = 0; first < longest; first += length) {
      const size_t last = std::min(first + length, longest);
      exchange().await(gather(call, mine.data() + std::min(first, mine.size()), first, last, all.mutate<std::byte>()));
      read({first, last, peers_});
    }
    return;
  }
  const size_t received = ranges.longest_of_peers();
  for (size_t at = 0; at < ranges.longest(); at += length) {
    exchange().await(swap(call, mine.data(), ranges, at, length, all.mutate<std::byte>()));
    if (at < received) read({0, std::min(length, received - at), peers_, begins_});
  }
}

// A started exchange. It awaits its ticket even if it is not finished, so that its memory returns to the pool only
// after the data have arrived.
class NcclGroup::PendingCall : public Started {
 public:
  PendingCall(NcclGroup& group, const Call& call, Tensor mine, size_t longest, const Ranges& ranges)
      : group_(group), mine_(std::move(mine)), longest_(longest) {
    const auto* const bytes = mine_.data<std::byte>();
    size_t total = 0;
    if (ranges.all()) {
      for (const size_t size : group.sizes_) total += size;
      all_ = group.workspace(total);
      ticket_ = group.gather(call, bytes, 0, longest, all_.mutate<std::byte>());
      group.begins_.assign(group.begins_.size(), 0);
    } else {
      for (const Range& range : ranges.of_peers) total += range.size();
      all_ = group.workspace(total);
      longest_ = ranges.longest_of_peers();
      ticket_ = group.swap(call, bytes, ranges, 0, std::max(longest, size_t{1}), all_.mutate<std::byte>());
    }
    peers_ = group.peers_, begins_ = group.begins_;
  }
  PendingCall(const PendingCall&) = delete;
  ~PendingCall() override { group_.exchange().await(ticket_); }

  bool ready() override { return group_.exchange().is_done(ticket_); }
  void finish(Read read) override {
    group_.exchange().await(ticket_);
    if (longest_ > 0) read({0, longest_, peers_, begins_});
  }

 private:
  NcclGroup& group_;
  const Tensor mine_;
  Tensor all_;
  size_t longest_;  // that this rank reads of any other
  CardExchange::Ticket ticket_;
  std::vector<const std::byte*> peers_;
  std::vector<size_t> begins_;
};

std::unique_ptr<Transport::Started> NcclGroup::start(const Call& call, Tensor mine, size_t longest, Ranges ranges) {
  if (!on_card(call)) return host_->start(call, std::move(mine), longest, ranges);
  agree(call, mine.bytes(), longest);
  if (!mine.unshared()) mine = mine.clone();
  return std::make_unique<PendingCall>(*this, call, std::move(mine), longest, ranges);
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
  std::vector<Range> slices(n);
  for (size_t first = 0; first < mine.size(); first += length) {
    const Range part{first, std::min(first + length, mine.size())};
    for (size_t r = 0; r < n; ++r) slices[r] = part.slice(r, n);
    const Range own = slices[me];
    const std::vector<Range> mine_of_all(n, own);
    exchange().await(swap(call, mine.data(), {mine_of_all, slices}, 0, length, received.mutate<std::byte>()));
    if (own.size() > 0) fold({own.first, own.last, peers_}, result.data() + own.first);
    for (size_t r = 0; r < n; ++r) counts_[r] = slices[r].size();
    exchange().await(exchange().gather(call, result.data() + own.first, counts_, result.data() + first));
  }
}

bool NcclGroup::combine_in_any_order(const Call& call, Bytes mine, std::span<std::byte> result) {
  if (!on_card(call)) return host_->combine_in_any_order(call, mine, result);
  if (!library_reduces(call)) return false;
  agree(call, mine.size(), mine.size());
  if (!mine.empty()) exchange().await(exchange().reduce(call, mine, result));
  return true;
}

std::unique_ptr<Transport> NcclGroup::split(int color, int key, Site site) {
  std::unique_ptr<Transport> group = host_->split(color, key, site);
  if (!group) return nullptr;
  return std::make_unique<NcclGroup>(std::move(group), connect_, library_, where_);
}

}  // namespace weft
