// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/pack.h"

#include "weft/engine/kernels/backend.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/engine/tape/record.h"

namespace weft {
namespace {

template <class T> using Pooled = std::vector<T, pool::Allocator<T>>;

const Packing sample_packing = {{{1, {2, 3}}, {8, {}}, {9, {2}}}, 13};

const Op pack_op{
    "pack", {{"with gaps", {{2, 3}, {}, {2}}, [](auto x) { return pack(x, sample_packing); }}}, Algebra::linear};
// Unpacking records one node for the flat memory, whose pullback packs all gradients, and one node per part.
const Op unpack_op{"unpack",
                   {{"and pack others",
                     {{13}},
                     [](auto x) {
                       const Vars parts = unpack(x[0], sample_packing);
                       const Var others[] = {square(parts[0]) * parts[0], {}, parts[2]};
                       return pack(others, sample_packing);
                     }}},
                   Algebra::linear};
const Op part_op{"part of unpack", unpack_op.samples, Algebra::linear};

void fill_zeros(Tensor& flat, int64_t begin, int64_t end) {
  if (begin == end) return;
  Tensor gap = flat.slice(begin, end);
  backend(flat.device()).fill(0, gap);
}

Tensor packed(std::span<const Var> parts, const Packing& packing, DType dtype, Device device) {
  const size_t bytes = static_cast<size_t>(packing.size) * size_of(dtype);
  Tensor flat = packing.allocate ? Tensor(packing.allocate(bytes), 0, {packing.size}, dtype)
                                 : Tensor({packing.size}, dtype, device);
  int64_t end = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto& [begin, shape] = packing.slots[i];
    if (!parts[i].defined()) continue;
    require(parts[i].shape() == shape, "pack: part ", i, " is ", parts[i].shape(), ", its place is for ", shape);
    fill_zeros(flat, end, begin);
    end = packing.slots[i].end();
    flat.slice(begin, end).copy_from(parts[i].value().reshape({shape.size()}));
  }
  fill_zeros(flat, end, packing.size);
  return flat;
}

}  // namespace

Var pack(std::span<const Var> parts, const Packing& packing) {
  Pooled<const Var*> given;
  for (const Var& part : parts)
    if (part.defined()) given.push_back(&part);
  require(parts.size() == packing.slots.size() && !given.empty(), "pack: ", given.size(), " parts for ",
          packing.slots.size(), " places");
  Recording node(pack_op, packed(parts, packing, given[0]->dtype(), given[0]->device()), given, given.size());
  for (size_t i = 0; i < parts.size(); ++i)
    if (parts[i].defined())
      node.add(parts[i], [slot = packing.slots[i]](const Var& g) {
        return reshape(slice(g, 0, slot.begin, slot.end()), slot.shape);
      });
  return node.finish();
}

Vars unpack(const Var& flat, const Packing& packing, const std::function<void(size_t part)>& reached) {
  require(flat.shape() == Shape{packing.size}, "unpack: ", flat.shape(), " for ", packing.size, " elements");
  using Gradients = Pooled<Var>;  // by part, until all have arrived
  const auto gradients = std::allocate_shared<Gradients>(pool::Allocator<Gradients>(), packing.slots.size());
  const Tensor nothing({0}, flat.dtype(), flat.device());
  const Var together = record(unpack_op, nothing, from(flat, [gradients, &packing](const Var&) {
                                const Gradients all = std::exchange(*gradients, Gradients(gradients->size()));
                                return pack(all, packing);
                              }));
  Vars parts;
  for (size_t i = 0; i < packing.slots.size(); ++i) {
    const auto& [begin, shape] = packing.slots[i];
    const auto pullback = [=](const Var& g) {
      (*gradients)[i] = g;
      if (reached) reached(i);
      return replicated_constant(nothing);
    };
    parts.push_back(
        record(part_op, flat.value().slice(begin, begin + shape.size()).reshape(shape), from(together, pullback)));
  }
  return parts;
}

}  // namespace weft
