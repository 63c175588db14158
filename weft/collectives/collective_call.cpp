// SPDX-License-Identifier: Apache-2.0
// How data move in a collective: every rank exposes a tensor, and copies or folds elements of the other ranks' tensors.
#include <algorithm>

#include "weft/collectives/collective_call.h"
#include "weft/engine/kernels/backend.h"

namespace weft {
namespace {

// A tensor over memory that it does not own. It allocates nothing, and is valid as long as this object and the memory.
class Borrowed {
 public:
  Borrowed(const std::byte* data, int64_t count, DType dtype, Device device)
      : storage_(const_cast<std::byte*>(data), static_cast<size_t>(count) * size_of(dtype), device, [](Storage*) {}),
        tensor_(StorageHandle(&storage_), 0, {count}, dtype) {}
  Borrowed(const Borrowed&) = delete;
  operator const Tensor&() const { return tensor_; }
  operator Tensor&() { return tensor_; }

 private:
  Storage storage_;
  Tensor tensor_;
};

// A peer's elements where this rank's kernels can read them: in place, or in a copy on this rank's card.
class PeerTensor {
 public:
  PeerTensor(const std::byte* data, int64_t count, DType dtype, Device device, bool in_place)
      : copy_(in_place ? Tensor() : Tensor({count}, dtype, device)),
        tensor_(in_place ? data : copy_.data<std::byte>(), count, dtype, device) {
    if (!in_place) backend(device).copy(copy_.mutate<std::byte>(), data, copy_.bytes());
  }
  operator const Tensor&() const { return tensor_; }

 private:
  Tensor copy_;
  const Borrowed tensor_;
};

std::span<const std::byte> bytes_of(const Tensor& x) { return {x.data<std::byte>(), x.bytes()}; }

Tensor flat(const Tensor& x) { return x.reshape({x.size()}); }

Binary binary(ReduceOp op) {
  switch (op) {
    case ReduceOp::product: return Binary::Multiply;
    case ReduceOp::maximum: return Binary::Maximum;
    case ReduceOp::minimum: return Binary::Minimum;
    default: return Binary::Add;
  }
}

// The device on which the ranks expose a tensor: its own, or the host if the transport exposes no device memory.
Device exposure_device(const Transport& transport, const Tensor& x) {
  return transport.shows_device_memory() ? x.device() : Device::cpu;
}

// The origin of the result of this collective on x.
Origin result_origin(const Tensor& x, const Call& call) {
  return x.origin_bits() != 0 ? Origin{x.origin().tape, name(call.verb)} : Origin();
}

constexpr int64_t fold_block = 4096;  // elements

// Folds `count` elements of the ranks' parts, from element `first` on, in the order of `ranks`, and writes them to
// `to`. It works block by block, so that a fold on the host stays in the first-level cache. It sums in a block of its
// own, because `to` may be the tensor of one of the ranks. `own`: all parts are known to be on this rank's card.
void fold_part(const Transport::Part& part, int64_t first, int64_t count, std::span<const int> ranks, ReduceOp op,
               bool own, Tensor& to) {
  const DType dtype = to.dtype();
  const Device device = to.device();
  Backend& on = backend(device);
  const auto element = static_cast<int64_t>(size_of(dtype));
  std::byte* const base = to.mutate<std::byte>();
  const int64_t block = device == Device::cpu ? fold_block : std::max<int64_t>(count, 1);
  const Tensor sums = ranks.size() > 2 ? Tensor({std::min(block, count)}, dtype, device) : Tensor();
  for (int64_t i = 0; i < count; i += block) {
    const int64_t n = std::min(block, count - i);
    const auto peer = [&](size_t r) {
      const std::byte* const data = part.peers[static_cast<size_t>(ranks[r])] + (first + i) * element;
      return PeerTensor(data, n, dtype, device, own || on.reaches(data));
    };
    Borrowed block_of_result(base + i * element, n, dtype, device);
    Tensor& result = block_of_result;
    if (ranks.size() == 1) {
      result.copy_from(peer(0));
    } else if (ranks.size() == 2) {
      on.binary(binary(op), peer(0), peer(1), result);
    } else {
      Tensor sum = sums.slice(0, n);
      on.binary(binary(op), peer(0), peer(1), sum);
      for (size_t r = 2; r < ranks.size(); ++r)
        on.binary(binary(op), sum, peer(r), r + 1 == ranks.size() ? result : sum);
    }
    if (op == ReduceOp::mean) on.unary(Unary::Affine, {1 / static_cast<double>(ranks.size()), 0}, result, result);
  }
}

}  // namespace

CollectiveCall::CollectiveCall(const Call& call, Tensor x, size_t longest, Tensor y, Moves moves)
    : call_(call),
      origin_(result_origin(x, call)),
      x_(std::move(x)),
      longest_(longest),
      y_(std::move(y)),
      moves_(std::move(moves)) {
  int at_beginning = 0;
  for (size_t r = 0; r < moves_.to.size(); ++r) {
    if (moves_.of_peers[r].size() == 0) continue;
    sources_.push_back(static_cast<int>(r));
    at_beginning += moves_.to[r] == 0;
  }
  folds_ = at_beginning > 1;
}

void CollectiveCall::prepare(const Transport& transport) {
  const Device device = exposure_device(transport, x_);
  if (x_.device() != device) x_ = staged(x_);
  staging_ = flat(y_.device() == device ? y_ : staging_for(y_));
  must_synchronize_ = !transport.keeps_stream_order();
  if (must_synchronize_) backend(device).synchronize();
}

Tensor CollectiveCall::run(Transport& transport) {
  prepare(transport);
  transport.exchange(call_, bytes_of(x_), longest_, ranges(), [this](const Transport::Part& part) { read(part); });
  return result();
}

std::unique_ptr<Transport::Started> CollectiveCall::start(Transport& transport) {
  prepare(transport);
  return transport.start(call_, std::move(x_), longest_, ranges());
}

Tensor CollectiveCall::finish(Transport::Started& started) {
  started.finish([this](const Transport::Part& part) { read(part); });
  return result();
}

Tensor CollectiveCall::result() {
  if (!sources_.empty() && y_.device() != staging_.device()) y_.copy_from(staging_.reshape(y_.shape()));
  y_.set_origin(origin_);
  return y_;
}

void CollectiveCall::read(const Transport::Part& part) {
  if (folds_)
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
  Tensor range = staging_.slice(elements(first - all.first), elements(last - all.first));
  fold_part(part, elements(first - here.first), range.size(), sources_, call_.op, !must_synchronize_, range);
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
  const std::span<std::byte> result_bytes{result.mutate<std::byte>(), result.bytes()};
  if (in_any_order && transport.combine_in_any_order(call, bytes_of(exposed), result_bytes)) {
    if (call.op == ReduceOp::mean) on.unary(Unary::Affine, {1.0 / transport.size(), 0}, result, result);
  } else {
    const auto element = static_cast<int64_t>(size_of(x.dtype()));
    transport.combine(call, bytes_of(exposed), result_bytes, [&](const Transport::Part& part, std::byte* to) {
      const int64_t count = static_cast<int64_t>(part.last - part.first) / element;
      Borrowed range(to, count, x.dtype(), device);
      fold_part(part, 0, count, everyone, call.op, !must_synchronize, range);
      if (must_synchronize) on.synchronize();
    });
  }
  if (!in_place) y.copy_from(result);
  y.set_origin(origin);
}

}  // namespace weft
