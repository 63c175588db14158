// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/nccl/nccl_group.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "weft/collectives/fold.h"
#include "weft/collectives/transports/mpi/library_reduction.h"
#include "weft/collectives/transports/nccl/nccl_started.h"
#include "weft/collectives/unfinished.h"
#include "weft/engine/kernels/backend.h"

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

NcclGroup::NcclGroup(std::unique_ptr<Transport> host, Connect connect, std::string library, Where where,
                     std::shared_ptr<LaunchOrder> order)
    : host_(std::move(host)),
      numbers_(host_->split(0, 0, Site::here("the order of a card's calls"))),
      connect_(std::move(connect)),
      library_(std::move(library)),
      where_(where),
      order_(order ? std::move(order) : std::make_shared<LaunchOrder>(host_->global(GroupRank{host_->rank()}))) {
  const auto n = static_cast<size_t>(size());
  sizes_.resize(n), counts_.resize(n), begins_.resize(n), slices_.resize(n), peers_.resize(n);
  backend(where_.device).while_waiting([held = std::weak_ptr(host_->unfinished()), fault = where_.fault] {
    const std::shared_ptr<Unfinished> unfinished = held.lock();
    fault->throw_it([&] {  // a rank that has failed is why its peers' cards wait in vain
      if (unfinished) unfinished->throw_failure();
    });
    if (unfinished) unfinished->go_on();
    return unfinished && !unfinished->empty();
  });
  if (where_.set_up == SetUp::at_once) set_up();
}

// By first products, without a bias and with one, a first convolution in each of three ways, and a first sum in each of
// two.
void NcclGroup::set_up() {
  Backend& device = backend(where_.device);
  const Tensor one = Tensor::zeros({1, 1}, DType::f32, where_.device);
  const Tensor bias = one.reshape({1});
  Tensor product = Tensor::like(one), x = Tensor::zeros({size(), alignment}, DType::f32, where_.device);
  device.matmul(one, false, one, false, {}, product);
  device.matmul(one, false, one, false, {&bias, {}}, product);
  const Convolution padded{1, 1, 1, 1, 1, 1, 3, 3, 1, 1, 1, 1, 1};
  Tensor image = one.reshape({1, 1, 1, 1}), windows({1, 3, 3, 1}, DType::f32, where_.device),
         weights = one.clone().reshape({1, 1, 1, 1});
  device.convolve(padded, image, weights, {}, windows);
  device.convolve_input_gradient(padded, windows, weights, image);
  device.convolve_weight_gradient(padded, image, windows, weights);
  std::vector<int> ranks(sizes_.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  const Fold fold{ranks, ReduceOp::sum, x.dtype(), x.device(), true};
  const std::span<std::byte> bytes(x.mutate<std::byte>(), x.bytes());
  for (const bool in_any_order : {false, true})
    reduce(describe(Verb::all_reduce, x, Site::here("the set-up of NCCL")), bytes, bytes,
           {{[](int, int) { return true; }, {}, true, in_any_order}, fold});
  device.synchronize();
}

// All ranks have started what this one has started before, since they have come here. Where nothing is started, they
// come with a number each. Otherwise they propose it now: before, it would have been in the way of what others wait
// for.
NcclGroup::Turn NcclGroup::agree(const Call& call, size_t mine, size_t longest) {
  unfinished()->go_on();
  std::unique_ptr<LaunchOrder::Place> place;
  if (unfinished()->empty()) place = std::make_unique<LaunchOrder::Place>(*order_);
  const Announcement announced = announce(mine, longest, place ? place->number() : 0);
  Number largest = 0;
  host_->expose(call, announced.bytes(), announced.bytes().size(),
                [&](const Part& part) { largest = read_announced(call, part, longest, sizes_); });
  for (const auto& started : started_)
    if (!started->has_proposed()) take_step(*started);
  if (largest == 0) {
    if (!place) place = std::make_unique<LaunchOrder::Place>(*order_);
    const Number number = place->number();
    host_->expose(call, std::as_bytes(std::span(&number, 1)), sizeof number,
                  [&](const Part& part) { largest = largest_of(part); });
  }
  place->agree(largest);
  place->become_first();
  connect(call);
  return place;
}

NcclGroup::Announcement NcclGroup::announce(size_t mine, size_t longest, Number number) {
  const bool first = !exchange_;
  if (first) exchange_ = connect_(*host_);
  return {mine, longest, number, first, first && rank() == 0 ? exchange_->address() : CardExchange::Address()};
}

NcclGroup::Number NcclGroup::read_announced(const Call& call, const Part& part, size_t longest,
                                            std::vector<size_t>& sizes) {
  Number largest = 0;
  bool all = true;
  for (size_t r = 0; r < sizes.size(); ++r) {
    Announcement theirs;
    std::memcpy(&theirs, part.peers[r], part.last);
    if (theirs.longest != longest)
      throw Fault(exit_codes::mismatch, "collective mismatch: the ranks expect different numbers of bytes in " +
                                            call.text() + "; this one " + weft::text(longest));
    sizes[r] = theirs.size;
    largest = std::max(largest, theirs.number);
    all = all && theirs.number > 0;
    if (r == 0 && theirs.with_address) address_ = theirs.address;
  }
  return all ? largest : 0;
}

NcclGroup::Number NcclGroup::largest_of(const Part& numbers) {
  Number largest = 0;
  for (const std::byte* const peer : numbers.peers) {
    Number theirs = 0;
    std::memcpy(&theirs, peer, sizeof theirs);
    largest = std::max(largest, theirs);
  }
  return largest;
}

void NcclGroup::connect(const Call& call) {
  if (address_) exchange_->connect(call, *address_);
  address_.reset();
}

Tensor NcclGroup::workspace(size_t bytes) const {
  return Tensor({static_cast<int64_t>(bytes)}, DType::u8, where_.device);
}

void NcclGroup::set_peers(std::byte* packed) {
  for (size_t r = 0; r < counts_.size(); packed += counts_[r++]) peers_[r] = packed;
}

CardExchange::Ticket NcclGroup::gather(const Call& call, CardExchange::Mark after, const std::byte* mine,
                                       std::span<const size_t> sizes, Range part, std::byte* to) {
  for (size_t r = 0; r < sizes.size(); ++r) counts_[r] = std::min(part.last, sizes[r]) - std::min(part.first, sizes[r]);
  set_peers(to);
  return exchange_->gather(call, after, mine + std::min(part.first, sizes[static_cast<size_t>(rank())]), counts_, to);
}

CardExchange::Ticket NcclGroup::swap(const Call& call, CardExchange::Mark after, const std::byte* mine,
                                     const Ranges& ranges, size_t skipped, size_t part, std::byte* to) {
  const auto me = static_cast<size_t>(rank());
  const bool evenly = gathers_evenly(call, ranges);
  for (size_t r = 0; r < counts_.size(); ++r) {
    const Range in = ranges.of_peers[r].piece(skipped, part);
    begins_[r] = in.first;
    counts_[r] = r == me && !evenly ? 0 : in.size();
    slices_[r] = ranges.by_peers[r].piece(skipped, part);
  }
  set_peers(to);
  if (evenly) return exchange_->gather(call, after, mine + begins_[me], counts_, to);
  peers_[me] = mine + begins_[me];
  return exchange_->swap(call, after, mine, slices_, counts_, to);
}

void NcclGroup::await(CardExchange::Ticket ticket) {
  exchange_->settle();
  exchange_->await(ticket);
}

void NcclGroup::exchange(const Call& call, Bytes mine, size_t longest, Ranges ranges, Read read) {
  if (!on_card(call)) return host_->exchange(call, mine, longest, ranges, read);
  const Turn turn = agree(call, mine.size(), longest);
  const auto n = static_cast<size_t>(size());
  const size_t length = std::min(aligned(where_.workspace_bytes / n), longest);
  Tensor all = workspace(n * length);
  if (ranges.all()) {
    for (size_t first = 0; first < longest; first += length) {
      const size_t last = std::min(first + length, longest);
      await(gather(call, exchange_->mark(), mine.data(), sizes_, {first, last}, all.mutate<std::byte>()));
      read({first, last, peers_});
    }
    return;
  }
  const size_t received = ranges.longest_of_peers();
  for (size_t at = 0; at < ranges.longest(); at += length) {
    await(swap(call, exchange_->mark(), mine.data(), ranges, at, length, all.mutate<std::byte>()));
    if (at < received) read({0, std::min(length, received - at), peers_, begins_});
  }
}

// For each part, every rank receives its slice from all ranks, folds these into the result, and then all ranks gather
// the folded slices. A part of `mine` is not read after its slices have been folded, so `result` may be the same
// memory.
void NcclGroup::reduce(const Call& call, Bytes mine, std::span<std::byte> result, const Reduction& reduction) {
  if (!on_card(call)) return host_->reduce(call, mine, result, reduction);
  if (reduction.in_any_order && reduces_in_any_order(call, mine.size())) {
    const Turn turn = agree(call, mine.size(), mine.size());
    if (!mine.empty()) await(exchange_->reduce(call, exchange_->mark(), mine, result));
    return reduction.fold.divide(result.data(), static_cast<int64_t>(result.size() / size_of(call.dtype)));
  }
  if (!reduction.to_all) return Transport::reduce(call, mine, result, reduction);
  const Turn turn = agree(call, mine.size(), mine.size());
  const auto n = static_cast<size_t>(size()), me = static_cast<size_t>(rank());
  const size_t length = std::min(aligned(where_.workspace_bytes / n) * n, mine.size());
  Tensor received = workspace(length + n * alignment);
  std::vector<Range> slices(n);
  for (size_t first = 0; first < mine.size(); first += length) {
    const Range part{first, std::min(first + length, mine.size())};
    for (size_t r = 0; r < n; ++r) slices[r] = part.slice(r, n);
    const Range own = slices[me];
    const std::vector<Range> mine_of_all(n, own);
    await(swap(call, exchange_->mark(), mine.data(), {mine_of_all, slices}, 0, length, received.mutate<std::byte>()));
    if (own.size() > 0) reduction.fold.write({own.first, own.last, peers_}, result.data() + own.first);
    for (size_t r = 0; r < n; ++r) counts_[r] = slices[r].size();
    await(exchange_->gather(call, exchange_->mark(), result.data() + own.first, counts_, result.data() + first));
  }
}

std::unique_ptr<Transport::Request> NcclGroup::start_reduction(const Call& call, Tensor mine, Tensor result,
                                                               const Reduction& reduction) {
  if (on_card(call)) return Transport::start_reduction(call, std::move(mine), std::move(result), reduction);
  return host_->start_reduction(call, std::move(mine), std::move(result), reduction);
}

bool NcclGroup::reduces_in_any_order(const Call& call, size_t bytes) const {
  return on_card(call) ? library_reduces(call) : host_->reduces_in_any_order(call, bytes);
}

void NcclGroup::finalize(Site site) {
  if (exchange_) exchange_->close();
  host_->finalize(site);
}

std::unique_ptr<Transport> NcclGroup::split(int color, int key, Site site) {
  std::unique_ptr<Transport> group = host_->split(color, key, site);
  if (!group) return nullptr;
  return std::make_unique<NcclGroup>(std::move(group), connect_, library_, where_, order_);
}

}  // namespace weft
