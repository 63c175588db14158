// How data move in a meeting: every rank shows a tensor and copies, or folds, what it wants of the others'.
#include <algorithm>

#include "collectives/meeting.h"
#include "engine/backend.h"

namespace weft {
namespace {

// A tensor over memory that somebody else owns and keeps alive, for as long as this object lives: no allocation.
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

// What a peer shows, where this rank's kernels can read it: in place, or copied from the card that it is on.
class Seen {
 public:
  Seen(const std::byte* data, int64_t count, DType dtype, Device device, bool in_place)
      : copy_(in_place ? Tensor() : Tensor({count}, dtype, device)),
        seen_(in_place ? data : copy_.data<std::byte>(), count, dtype, device) {
    if (!in_place) backend(device).copy(copy_.mutate<std::byte>(), data, copy_.bytes());
  }
  operator const Tensor&() const { return seen_; }

 private:
  Tensor copy_;
  const Borrowed seen_;
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

// Where the group can meet over a tensor: on its own device, or on the host if the transport reaches no further.
Device place(const Transport& transport, const Tensor& x) {
  return transport.shows_device_memory() ? x.device() : Device::cpu;
}

// What the ranks make of x together.
Origin exchanged(const Tensor& x, const Call& call) {
  return x.origin_bits() != 0 ? Origin{x.origin().tape, name(call.verb)} : Origin();
}

constexpr int64_t fold_block = 4096;  // elements

// to = the fold of `count` elements from element `first` on of the ranks' parts, in the order of `ranks`. Block by
// block, so that a host fold stays in the first-level cache; by way of a block of its own, since `to` may be what a
// rank shows. `own`: the parts are on this rank's card in any case.
void fold_part(const Transport::Part& part, int64_t first, int64_t count, std::span<const int> ranks, ReduceOp op,
               bool own, Tensor& to) {
  const DType dtype = to.dtype();
  const Device device = to.device();
  Backend& on = backend(device);
  const auto element = static_cast<int64_t>(size_of(dtype));
  std::byte* const base = to.mutate<std::byte>();
  const int64_t block = device == Device::cpu ? fold_block : std::max<int64_t>(count, 1);
  const Tensor room = ranks.size() > 2 ? Tensor({std::min(block, count)}, dtype, device) : Tensor();
  for (int64_t i = 0; i < count; i += block) {
    const int64_t n = std::min(block, count - i);
    const auto peer = [&](size_t r) {
      const std::byte* const shown = part.peers[static_cast<size_t>(ranks[r])] + (first + i) * element;
      return Seen(shown, n, dtype, device, own || on.reaches(shown));
    };
    Borrowed whole(base + i * element, n, dtype, device);
    Tensor& result = whole;
    if (ranks.size() == 1) {
      result.copy_from(peer(0));
    } else if (ranks.size() == 2) {
      on.binary(binary(op), peer(0), peer(1), result);
    } else {
      Tensor sum = room.slice(0, n);
      on.binary(binary(op), peer(0), peer(1), sum);
      for (size_t r = 2; r < ranks.size(); ++r)
        on.binary(binary(op), sum, peer(r), r + 1 == ranks.size() ? result : sum);
    }
    if (op == ReduceOp::mean) on.unary(Unary::Affine, {1 / static_cast<double>(ranks.size()), 0}, result, result);
  }
}

}  // namespace

Meeting::Meeting(const Call& call, Tensor x, size_t longest, Tensor y, Windows windows)
    : call_(call),
      origin_(exchanged(x, call)),
      x_(std::move(x)),
      longest_(longest),
      y_(std::move(y)),
      windows_(std::move(windows)),
      fold_{} {}

Meeting::Meeting(const Call& call, Tensor x, Tensor y, Fold fold)
    : call_(call),
      origin_(exchanged(x, call)),
      x_(std::move(x)),
      longest_(x_.bytes()),
      y_(std::move(y)),
      fold_(std::move(fold)) {}

void Meeting::prepare(const Transport& transport) {
  const Device device = place(transport, x_);
  if (x_.device() != device) x_ = staged(x_);
  landing_ = flat(y_.device() == device ? y_ : staging_for(y_));
  waits_ = !transport.keeps_stream_order();
  if (waits_) backend(device).synchronize();
}

Tensor Meeting::now(Transport& transport) {
  prepare(transport);
  transport.meet(call_, bytes_of(x_), longest_, [this](const Transport::Part& part) { read(part); });
  return result();
}

std::unique_ptr<Transport::Started> Meeting::start(Transport& transport) {
  prepare(transport);
  return transport.start(call_, std::move(x_), longest_);
}

Tensor Meeting::finish(Transport::Started& started) {
  started.finish([this](const Transport::Part& part) { read(part); });
  return result();
}

Tensor Meeting::result() {
  const bool changed = !windows_.empty() || !fold_.ranks.empty();
  if (changed && y_.device() != landing_.device()) y_.copy_from(landing_.reshape(y_.shape()));
  y_.set_origin(origin_);
  return y_;
}

void Meeting::read(const Transport::Part& part) {
  for (const Window& window : windows_) copy(part, window);
  if (!fold_.ranks.empty()) {
    const auto element = static_cast<int64_t>(size_of(landing_.dtype()));
    const int64_t first = static_cast<int64_t>(part.first) / element, last = static_cast<int64_t>(part.last) / element;
    const int64_t from = std::max(fold_.begin, first), to = std::min(fold_.begin + landing_.size(), last);
    if (from < to) {
      Tensor range = landing_.slice(from - fold_.begin, to - fold_.begin);
      fold_part(part, from - first, to - from, fold_.ranks, fold_.op, !waits_, range);
    }
  }
  if (waits_) backend(landing_.device()).synchronize();
}

void Meeting::copy(const Transport::Part& part, const Window& w) {
  const auto element = static_cast<int64_t>(size_of(landing_.dtype()));
  const auto first = static_cast<int64_t>(part.first), last = static_cast<int64_t>(part.last);
  const int64_t begin = std::max(w.from * element, first), end = std::min((w.from + w.count) * element, last);
  if (begin < end)
    backend(landing_.device())
        .copy(landing_.mutate<std::byte>() + w.to * element + begin - w.from * element,
              part.peers[static_cast<size_t>(w.rank)] + (begin - first), static_cast<size_t>(end - begin));
}

void all_reduce(Transport& transport, const Call& call, const Tensor& x, Tensor& y, std::span<const int> everyone,
                bool in_any_order) {
  const Device device = place(transport, x);
  const Origin origin = exchanged(x, call);  // before y, which may be x, changes
  const bool here = x.device() == device;
  const Tensor brought = here ? Tensor() : staged(x);
  const Tensor& shown = here ? x : brought;
  Tensor landing = here ? Tensor() : staging_for(y);
  Tensor& result = here ? y : landing;
  Backend& on = backend(device);
  const bool waits = !transport.keeps_stream_order();
  if (waits) on.synchronize();
  const std::span<std::byte> room{result.mutate<std::byte>(), result.bytes()};
  if (in_any_order && transport.combine_in_any_order(call, bytes_of(shown), room)) {
    if (call.op == ReduceOp::mean) on.unary(Unary::Affine, {1.0 / transport.size(), 0}, result, result);
  } else {
    const auto element = static_cast<int64_t>(size_of(x.dtype()));
    transport.combine(call, bytes_of(shown), room, [&](const Transport::Part& part, std::byte* to) {
      const int64_t count = static_cast<int64_t>(part.last - part.first) / element;
      Borrowed range(to, count, x.dtype(), device);
      fold_part(part, 0, count, everyone, call.op, !waits, range);
      if (waits) on.synchronize();
    });
  }
  if (!here) y.copy_from(result);
  y.set_origin(origin);
}

}  // namespace weft
