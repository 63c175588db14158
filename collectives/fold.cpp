// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/fold.h"

#include <optional>

#include "weft/engine/kernels/backend.h"
#include "weft/engine/kernels/scalar_ops.h"

namespace weft {
namespace {

constexpr int64_t block_on_host = 4096;  // elements, so that a fold stays in the first-level cache

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

Binary binary(ReduceOp op) {
  switch (op) {
    case ReduceOp::product: return Binary::Multiply;
    case ReduceOp::maximum: return Binary::Maximum;
    case ReduceOp::minimum: return Binary::Minimum;
    default: return Binary::Add;
  }
}

// One block of the parts.
struct Block {
  const Fold& fold;
  const Transport::Part& part;
  int64_t offset, count;  // of the block in each part, in bytes and in elements
  DType sum_dtype;

  // The fold of these ranks: the term of a single one, which `term` keeps, or else in the first of `sums`.
  const Tensor& folded(std::span<const int> ranks, FoldOrder order, std::span<Tensor> sums,
                       std::optional<PeerTensor>& term) const {
    if (ranks.size() > 1) {
      write(ranks, order, sums, sums[0]);
      return sums[0];
    }
    const std::byte* const data = part.peers[static_cast<size_t>(ranks[0])] + offset;
    const PeerTensor& peer =
        term.emplace(data, count, fold.dtype, fold.device, fold.in_place || backend(fold.device).reaches(data));
    if (sum_dtype == fold.dtype) return peer;
    backend(fold.device).cast(peer, sums[0]);
    return sums[0];
  }

  // Of at least two ranks. `to` may be the first of `sums`, or one of the ranks' parts.
  void write(std::span<const int> ranks, FoldOrder order, std::span<Tensor> sums, Tensor& to) const {
    const FoldOrder::Parts parts = order.parts(ranks);
    std::optional<PeerTensor> first, second;
    const Tensor& a = folded(parts.first, parts.of_first, sums, first);
    const Tensor& b = folded(parts.second, {}, sums.subspan(std::min<size_t>(1, sums.size())), second);
    backend(fold.device).binary(binary(fold.op), a, b, to);
  }
};

}  // namespace

void Fold::write(const Transport::Part& part, int64_t first, int64_t count, std::byte* to) const {
  Backend& on = backend(device);
  const auto size = static_cast<int64_t>(size_of(dtype)), result_size = static_cast<int64_t>(size_of(result_dtype));
  const int64_t block = std::max<int64_t>(device == Device::cpu ? std::min(block_on_host, count) : count, 1);
  const bool rounds = dtype == DType::bf16 && ranks.size() > 2;
  const DType sum_dtype = rounds || dtype != result_dtype ? DType::f32 : dtype;
  const bool casts_terms = sum_dtype != dtype, casts_result = sum_dtype != result_dtype;
  std::vector<Tensor, pool::Allocator<Tensor>> sums;  // of the subtrees that are being folded, from the largest on
  const auto halvings = static_cast<size_t>(std::bit_width(ranks.size() - 1));
  if (ranks.size() > 2 || casts_terms || casts_result)
    for (size_t i = 0; i <= halvings; ++i) sums.emplace_back(Shape{block}, sum_dtype, device);
  for (int64_t i = 0; i < count; i += block) {
    const int64_t n = std::min(block, count - i);
    if (n < block)
      for (Tensor& sum : sums) sum = sum.slice(0, n);
    const Block block_of_parts{*this, part, (first + i) * size, n, sum_dtype};
    Borrowed result(to + i * result_size, n, result_dtype, device);
    Tensor& total = casts_result ? sums[0] : static_cast<Tensor&>(result);
    if (std::optional<PeerTensor> only; ranks.size() == 1)
      total.copy_from(block_of_parts.folded(ranks, order, sums, only));
    else
      block_of_parts.write(ranks, order, sums, total);
    if (const size_t divisor = terms ? terms : ranks.size(); op == ReduceOp::mean && divisor > 1)
      on.unary(Unary::Affine, {1 / static_cast<double>(divisor), 0}, total, total);
    if (casts_result) on.cast(total, result);
  }
  if (!in_place) on.synchronize();
}

void Fold::divide(std::byte* sums, int64_t count) const {
  if (op != ReduceOp::mean) return;
  Borrowed result(sums, count, dtype, device);
  backend(device).unary(Unary::Affine, {1 / static_cast<double>(ranks.size()), 0}, result, result);
}

}  // namespace weft
