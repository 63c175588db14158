// How data move in a meeting: every rank shows a tensor and copies, or folds, what it wants of the others'.
#include <algorithm>
#include <limits>

#include "collectives/communicator.h"
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

double neutral(ReduceOp op, DType dtype) {
  if (op == ReduceOp::product) return 1;
  if (op != ReduceOp::maximum && op != ReduceOp::minimum) return 0;
  require(is_floating(dtype), "exscan: ", op, " of ", dtype, " has no neutral element for the first rank");
  const double infinity = std::numeric_limits<double>::infinity();
  return op == ReduceOp::maximum ? -infinity : infinity;
}

constexpr int64_t fold_block = 4096;  // elements

}  // namespace

// Where the group can meet over a tensor: on its own device, or on the host if the transport reaches no further.
static Device place(const Transport& transport, const Tensor& x) {
  return transport.shows_device_memory() ? x.device() : Device::cpu;
}

void Communicator::copy(Call call, const Tensor& x, size_t longest, std::span<const Window> windows, Tensor& y) {
  const Device device = place(*transport_, x);
  const Tensor shown = x.to(device);
  Tensor result = y.device() == device ? y : Tensor(y.shape(), y.dtype(), device);
  Backend& on = backend(device);
  on.synchronize();
  const auto element = static_cast<int64_t>(size_of(y.dtype()));
  std::byte* to = result.mutate<std::byte>();
  transport_->meet(call, bytes_of(shown), longest, [&](const Transport::Part& part) {
    for (const Window& w : windows) {
      const auto first = static_cast<int64_t>(part.first), last = static_cast<int64_t>(part.last);
      const int64_t begin = std::max(w.from * element, first), end = std::min((w.from + w.count) * element, last);
      if (begin < end)
        on.copy(to + w.to * element + begin - w.from * element,
                part.peers[static_cast<size_t>(w.rank)] + (begin - first), static_cast<size_t>(end - begin));
    }
    on.synchronize();
  });
  if (y.device() != device) y.copy_from(result);
}

// to = the fold of `count` elements from element `first` on of the ranks' parts, in the order of `ranks`. Block by
// block, so that a host fold stays in the first-level cache; by way of a block of its own, since `to` may be what a
// rank shows.
void Communicator::fold_part(const Transport::Part& part, int64_t first, int64_t count, std::span<const int> ranks,
                             ReduceOp op, Tensor& to) const {
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
      return Borrowed(part.peers[static_cast<size_t>(ranks[r])] + (first + i) * element, n, dtype, device);
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

void Communicator::fold(Call call, const Tensor& x, int64_t begin, int64_t count, std::span<const int> ranks,
                        ReduceOp op, Tensor& y) {
  const Device device = place(*transport_, x);
  const Tensor shown = x.to(device);
  Tensor result = y.device() == device ? flat(y) : Tensor({y.size()}, y.dtype(), device);
  Backend& on = backend(device);
  on.synchronize();
  const auto element = static_cast<int64_t>(size_of(x.dtype()));
  transport_->meet(call, bytes_of(shown), shown.bytes(), [&](const Transport::Part& part) {
    const int64_t first = static_cast<int64_t>(part.first) / element, last = static_cast<int64_t>(part.last) / element;
    const int64_t from = std::max(begin, first), to = std::min(begin + count, last);
    if (from >= to || ranks.empty()) return;
    Tensor range = result.slice(from - begin, to - begin);
    fold_part(part, from - first, to - from, ranks, op, range);
    on.synchronize();
  });
  if (ranks.empty()) on.fill(neutral(op, x.dtype()), result);
  if (y.device() != device) y.copy_from(result.reshape(y.shape()));
}

Tensor Communicator::folded(Call call, const Tensor& x, std::span<const int> ranks, ReduceOp op) {
  Tensor y = Tensor::like(x);
  fold(call, x, 0, x.size(), ranks, op, y);
  return y;
}

void Communicator::all_reduce(const Tensor& x, Tensor& y, ReduceOp op, Site site) {
  check_reducible(x, op);
  require(y.shape() == x.shape() && y.dtype() == x.dtype() && y.device() == x.device(), "all_reduce: the result ",
          y.dtype(), " ", y.shape(), " does not fit ", x.dtype(), " ", x.shape());
  const Device device = place(*transport_, x);
  const bool here = x.device() == device;
  const Tensor staged = here ? Tensor() : x.to(device);
  const Tensor& shown = here ? x : staged;
  Tensor landing = here ? Tensor() : Tensor(y.shape(), y.dtype(), device);
  Tensor& result = here ? y : landing;
  Backend& on = backend(device);
  on.synchronize();
  const auto element = static_cast<int64_t>(size_of(x.dtype()));
  transport_->combine(describe(Verb::all_reduce, x, site, op), bytes_of(shown),
                      {result.mutate<std::byte>(), result.bytes()}, [&](const Transport::Part& part, std::byte* to) {
                        const int64_t count = static_cast<int64_t>(part.last - part.first) / element;
                        Borrowed range(to, count, x.dtype(), device);
                        fold_part(part, 0, count, everyone_, op, range);
                        on.synchronize();
                      });
  if (!here) y.copy_from(result);
}

}  // namespace weft
