// SPDX-License-Identifier: Apache-2.0
// How data move in a collective: every rank exposes a tensor, and copies or folds elements of the other ranks' tensors.
#include <algorithm>

#include "weft/collectives/collective_call.h"
#include "weft/collectives/fold.h"
#include "weft/engine/kernels/backend.h"

namespace weft {
namespace {

std::span<const std::byte> bytes_of(const Tensor& x) { return {x.data<std::byte>(), x.bytes()}; }

Tensor flat(const Tensor& x) { return x.reshape({x.size()}); }

// The device on which the ranks expose a tensor: its own, or the host if the transport exposes no device memory.
Device exposure_device(const Transport& transport, const Tensor& x) {
  return transport.shows_device_memory() ? x.device() : Device::cpu;
}

// The origin of the result of this collective on x.
Origin result_origin(const Tensor& x, const Call& call) {
  return x.origin_bits() != 0 ? Origin{x.origin().tape, name(call.verb)} : Origin();
}

bool reduce_in_any_order(Transport& transport, const Call& call, const Tensor& x, Tensor& result) {
  if (!transport.combine_in_any_order(call, bytes_of(x), {result.mutate<std::byte>(), result.bytes()})) return false;
  if (call.op == ReduceOp::mean)
    backend(result.device()).unary(Unary::Affine, {1.0 / transport.size(), 0}, result, result);
  return true;
}

}  // namespace

CollectiveCall::CollectiveCall(const Call& call, Tensor x, size_t longest, Tensor y, Moves moves)
    : call_(call),
      origin_(result_origin(x, call)),
      x_(std::move(x)),
      longest_(longest),
      y_(std::move(y)),
      moves_(std::move(moves)),
      landing_(moves_.landing(y_.bytes())) {
  for (size_t r = 0; r < moves_.to.size(); ++r)
    if (moves_.of_peers[r].size() > 0) sources_.push_back(static_cast<int>(r));
  if (landing_ != Moves::Landing::anyhow) return;
  places_ = moves_.to;
  for (size_t r = 0; r < moves_.to.size(); ++r)
    moves_.to[r] = std::exchange(received_, received_ + moves_.of_peers[r].size());
}

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
  if (landing_ == Moves::Landing::anyhow)
    staging_ = Tensor({static_cast<int64_t>(received_ / size_of(y_.dtype()))}, y_.dtype(), device);
  else
    staging_ = flat(y_.device() == device ? y_ : staging_for(y_));
  must_synchronize_ = !transport.keeps_stream_order();
  if (must_synchronize_) backend(device).synchronize();
  rank_ = transport.rank();
}

Fold CollectiveCall::fold_for(int reader, std::span<const int> ranks) const {
  const FoldOrder order = FoldOrder::of(call_.verb, reader);
  return {ranks, call_.op, staging_.dtype(), staging_.device(), !must_synchronize_, order};
}

Tensor CollectiveCall::run(Transport& transport, bool in_any_order, std::optional<Transport::Reads> reads,
                           std::span<const Transport::Range> slices) {
  prepare(transport);
  const bool shares = in_any_order && of_one_size(slices) && reduce_in_any_order(transport, call_, x_, staging_);
  if (!shares && (!reads || !combine(transport, *reads, slices)))
    transport.exchange(call_, bytes_of(x_), longest_, ranges(), [this](const Transport::Part& part) { read(part); });
  return result();
}

bool CollectiveCall::combine(Transport& transport, Transport::Reads reads, std::span<const Transport::Range> slices) {
  const std::span<std::byte> result{staging_.mutate<std::byte>(), staging_.bytes()};
  Moves::List<int> sources;
  if (transport.combine_near_first(call_, bytes_of(x_), result, {reads, slices, fold_for(rank_, {})})) return true;
  if (!slices.empty()) return false;
  const auto write = [&](int reader, const Transport::Part& part, std::byte* to) {
    sources.clear();
    for (int source = 0; source < transport.size(); ++source)
      if (reads(reader, source)) sources.push_back(source);
    const auto count = static_cast<int64_t>((part.last - part.first) / size_of(staging_.dtype()));
    fold_for(reader, sources).write(part, 0, count, to);
  };
  return transport.combine_for_each(call_, bytes_of(x_), result, {reads, write});
}

std::unique_ptr<Transport::Started> CollectiveCall::start(Transport& transport, std::optional<Transport::Reads> reads,
                                                          std::span<const Transport::Range> slices) {
  prepare(transport);
  if (reads) {
    const Fold fold = fold_for(rank_, {});
    if (auto started = transport.start_sum(call_, x_, staging_, {*reads, slices, fold})) return started;
  }
  return transport.start(call_, std::move(x_), longest_, ranges());
}

Tensor CollectiveCall::finish(Transport::Started& started) {
  started.finish([this](const Transport::Part& part) { read(part); });
  return result();
}

Tensor CollectiveCall::result() {
  if (landing_ == Moves::Landing::anyhow) {
    Tensor result = flat(y_.device() == staging_.device() ? y_ : staged(y_));
    add_up(result);
    staging_ = std::move(result);
  }
  if (!sources_.empty() && y_.device() != staging_.device()) y_.copy_from(staging_.reshape(y_.shape()));
  y_.set_origin(origin_);
  return y_;
}

// Between two bytes at which a rank's bytes begin or end, the same ranks' bytes lie on each other.
void CollectiveCall::add_up(Tensor& result) {
  std::vector<size_t> borders;
  for (const int source : sources_) {
    const auto r = static_cast<size_t>(source);
    borders.insert(borders.end(), {places_[r], places_[r] + moves_.of_peers[r].size()});
  }
  std::sort(borders.begin(), borders.end());
  std::vector<const std::byte*> peers(places_.size());
  Moves::List<int> here;
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
  if (landing_ == Moves::Landing::on_each_other)
    fold(part);
  else
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

void CollectiveCall::fold(const Transport::Part& part) {
  const auto r = static_cast<size_t>(sources_[0]);  // the ranges of all sources are equal
  const Transport::Range all = moves_.of_peers[r], here = part.of(r);
  const size_t first = std::max(all.first, here.first), last = std::min(all.last, here.last);
  if (first >= last) return;
  const auto elements = [&](size_t bytes) { return static_cast<int64_t>(bytes / size_of(staging_.dtype())); };
  fold_for(rank_, sources_)
      .write(part, elements(first - here.first), elements(last - first),
             staging_.mutate<std::byte>() + (first - all.first));
}

void all_reduce(Transport& transport, const Call& call, const Tensor& x, Tensor& y, std::span<const int> everyone,
                bool in_any_order) {
  const Device device = exposure_device(transport, x);
  const Origin origin = result_origin(x, call);  // read before y changes, which may be x
  const bool in_place = x.device() == device;
  const Tensor copy = in_place ? Tensor() : staged(x);
  const Tensor& exposed = in_place ? x : copy;
  Tensor staging = in_place ? Tensor() : staging_for(y);
  Tensor& result = in_place ? y : staging;
  Backend& on = backend(device);
  const bool must_synchronize = !transport.keeps_stream_order();
  if (must_synchronize) on.synchronize();
  if (!in_any_order || !reduce_in_any_order(transport, call, exposed, result)) {
    const std::span<std::byte> result_bytes{result.mutate<std::byte>(), result.bytes()};
    const Fold fold{everyone, call.op, x.dtype(), device, !must_synchronize};
    if (!transport.combine_near_first(call, bytes_of(exposed), result_bytes, {[](int, int) { return true; }, {}, fold}))
      transport.combine(call, bytes_of(exposed), result_bytes, [&](const Transport::Part& part, std::byte* to) {
        fold.write(part, 0, static_cast<int64_t>((part.last - part.first) / size_of(x.dtype())), to);
        if (must_synchronize) on.synchronize();
      });
  }
  if (!in_place) y.copy_from(result);
  y.set_origin(origin);
}

}  // namespace weft
