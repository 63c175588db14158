// SPDX-License-Identifier: Apache-2.0
// How data move in a collective: every rank exposes a tensor, and copies or folds elements of the other ranks' tensors.
#include <algorithm>

#include "weft/collectives/collective_call.h"
#include "weft/collectives/fold.h"
#include "weft/engine/kernels/backend.h"

namespace weft {
namespace {

std::span<const std::byte> bytes_of(const Tensor& x) { return {x.data<std::byte>(), x.bytes()}; }

// The device on which the ranks expose a tensor: its own, or the host if the transport exposes no device memory.
Device exposure_device(const Transport& transport, const Tensor& x) {
  return transport.shows_device_memory() ? x.device() : Device::cpu;
}

}  // namespace

Origin origin_of_result(const Tensor& x, const Call& call) {
  return Origin::bits_of(x) != 0 ? Origin{Origin::of(x).tape, name(call.verb)} : Origin();
}

CollectiveCall::CollectiveCall(const Call& call, Tensor x, size_t longest, Tensor y, Moves moves)
    : call_(call),
      origin_(origin_of_result(x, call)),
      x_(std::move(x)),
      longest_(longest),
      y_(std::move(y)),
      moves_(std::move(moves)) {
  for (size_t r = 0; r < moves_.to.size(); ++r)
    if (moves_.of_peers[r].size() > 0) sources_.push_back(static_cast<int>(r));
  const Moves::Landing landing = moves_.landing(y_.bytes());
  if (landing == Moves::Landing::nothing || landing == Moves::Landing::side_by_side) return;
  places_ = moves_.to;
  size_t received = 0;
  for (size_t r = 0; r < moves_.to.size(); ++r)
    moves_.to[r] = std::exchange(received, received + moves_.of_peers[r].size());
}

CollectiveCall::CollectiveCall(const Call& call, Tensor x, Tensor y, List<int> sources)
    : call_(call),
      origin_(origin_of_result(x, call)),
      x_(std::move(x)),
      y_(std::move(y)),
      sources_(std::move(sources)) {}

auto CollectiveCall::Moves::landing(size_t bytes_of_result) const -> Landing {
  const Transport::Range* first = nullptr;
  size_t end = 0;
  bool beside = true, on_top = true;
  for (size_t r = 0; r < to.size(); ++r) {
    const Transport::Range& read = of_peers[r];
    if (read.size() == 0) continue;
    if (!first) first = &read;
    beside = beside && to[r] == end;
    on_top = on_top && to[r] == 0 && read.first == first->first && read.size() == bytes_of_result;
    end += read.size();
  }
  if (!first) return Landing::nothing;
  if (beside && end == bytes_of_result) return Landing::side_by_side;
  return on_top ? Landing::on_each_other : Landing::anyhow;
}

void CollectiveCall::prepare(const Transport& transport) {
  const Device device = exposure_device(transport, x_);
  if (x_.device() != device) x_ = staged(x_);
  if (places_.empty()) {
    staging_ = y_.device() == device ? y_ : staging_for(y_);
  } else {
    size_t received = 0;
    for (const Transport::Range& range : moves_.of_peers) received += range.size();
    staging_ = Tensor({static_cast<int64_t>(received / size_of(y_.dtype()))}, y_.dtype(), device);
  }
  must_synchronize_ = !transport.keeps_stream_order();
  if (must_synchronize_) backend(device).synchronize();
}

Fold CollectiveCall::fold(const Transport& transport) const {
  const FoldOrder order = FoldOrder::of(call_.verb, transport.rank());
  return {sources_, call_.op, staging_.dtype(), staging_.device(), !must_synchronize_, order};
}

Tensor CollectiveCall::run(Transport& transport, const Transport::Terms* terms) {
  prepare(transport);
  if (terms) {
    const std::span<std::byte> result{staging_.mutate<std::byte>(), staging_.bytes()};
    transport.reduce(call_, bytes_of(x_), result, {*terms, fold(transport)});
  } else {
    transport.exchange(call_, bytes_of(x_), longest_, ranges(), [this](const Transport::Part& part) { read(part); });
  }
  return result();
}

std::unique_ptr<Transport::Request> CollectiveCall::start(Transport& transport, const Transport::Terms* terms) {
  prepare(transport);
  if (!terms) return transport.start(call_, std::move(x_), longest_, ranges());
  return transport.start_reduction(call_, std::move(x_), staging_, {*terms, fold(transport)});
}

Tensor CollectiveCall::finish(Transport::Request& started) {
  started.finish([this](const Transport::Part& part) { read(part); });
  return result();
}

Tensor CollectiveCall::result() {
  if (!places_.empty()) {
    Tensor result = y_.device() == staging_.device() ? y_ : staged(y_);
    put_in_place(result);
    staging_ = std::move(result);
  }
  if (!sources_.empty() && y_.device() != staging_.device()) y_.copy_from(staging_);
  Origin::set(y_, origin_);
  return std::move(y_);
}

// Between two bytes at which a rank's bytes begin or end, the same ranks' bytes lie on each other.
void CollectiveCall::put_in_place(Tensor& result) {
  std::vector<size_t> borders;
  for (const int source : sources_) {
    const auto r = static_cast<size_t>(source);
    borders.insert(borders.end(), {places_[r], places_[r] + moves_.of_peers[r].size()});
  }
  std::sort(borders.begin(), borders.end());
  std::vector<const std::byte*> peers(places_.size());
  List<int> here;
  for (size_t i = 0; i + 1 < borders.size(); ++i) {
    const size_t first = borders[i], bytes = borders[i + 1] - first;
    here.clear();
    for (const int source : sources_) {
      const auto r = static_cast<size_t>(source);
      if (bytes == 0 || first < places_[r] || first >= places_[r] + moves_.of_peers[r].size()) continue;
      here.push_back(source);
      peers[r] = staging_.data<std::byte>() + moves_.to[r] + (first - places_[r]);
    }
    if (here.empty()) continue;
    const Fold fold{here, call_.op, staging_.dtype(), staging_.device(), true};
    fold.write({0, bytes, peers}, 0, static_cast<int64_t>(bytes / size_of(staging_.dtype())),
               result.mutate<std::byte>() + first);
  }
}

void CollectiveCall::read(const Transport::Part& part) {
  for (const int source : sources_) copy(part, source);
  if (must_synchronize_) backend(staging_.device()).synchronize();
}

void CollectiveCall::copy(const Transport::Part& part, int source) {
  const auto r = static_cast<size_t>(source);
  const Transport::Range all = moves_.of_peers[r], here = part.of(r);
  const size_t first = std::max(all.first, here.first), last = std::min(all.last, here.last);
  if (first < last)
    backend(staging_.device())
        .copy(staging_.mutate<std::byte>() + moves_.to[r] + (first - all.first), part.peers[r] + (first - here.first),
              last - first);
}

}  // namespace weft
