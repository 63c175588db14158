// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated_card/rendezvous.h"

#include <algorithm>
#include <cstring>

#include "tests/emulated_card/access.h"
#include "weft/engine/tensor/dtype.h"

namespace weft::emulated {
namespace {

template <class C> C combine(int reduction, C a, C b) {
  switch (reduction) {
    case ncclSum: return static_cast<C>(a + b);
    case ncclProd: return static_cast<C>(a * b);
    case ncclMax: return std::max(a, b);
    default: return std::min(a, b);
  }
}

// To all ranks, or to each its share.
template <class T> void reduce(const std::vector<Rendezvous::Part>& parts) {
  using C = Compute<T>;
  const auto value = [&](const Rendezvous::Part& part, size_t i) {
    return static_cast<C>(reinterpret_cast<const T*>(part.operation.from)[i]);
  };
  const auto [count, reduction] = std::pair(parts[0].operation.count, parts[0].operation.variant);
  const bool scatters = parts[0].operation.verb == Verb::reduce_scatter;
  for (size_t i = 0; i < (scatters ? parts.size() * count : count); ++i) {
    C result = value(parts[0], i);
    for (size_t r = 1; r < parts.size(); ++r) result = combine(reduction, result, value(parts[r], i));
    for (size_t r = 0; r < parts.size(); ++r)
      if (!scatters || i / count == r) reinterpret_cast<T*>(parts[r].operation.to)[i % count] = T(result);
  }
}

}  // namespace

size_t Operation::bytes() const {
  switch (type) {
    case ncclUint8: return count;
    case ncclBfloat16: return 2 * count;
    case ncclFloat32: return 4 * count;
    default: return 8 * count;
  }
}

size_t Operation::sent(size_t ranks) const { return verb == Verb::reduce_scatter ? ranks * bytes() : bytes(); }
size_t Operation::received(size_t ranks) const { return verb == Verb::all_gather ? ranks * bytes() : bytes(); }

bool Operation::matches(const Operation& other) const {
  return verb == other.verb && count == other.count && type == other.type && variant == other.variant;
}

bool Rendezvous::asked_by_all() const {
  return std::all_of(parts.begin(), parts.end(), [](const Part& part) { return part.comm; });
}

void Rendezvous::hold() {
  over = true;
  for (const auto& [comm, operation, stream, when, place, here] : parts) {
    begin_work(when, place);
    name_work("an operation of NCCL");
    access(operation.from, operation.sent(parts.size()), false);
    access(operation.to, operation.received(parts.size()), true);
  }
  const Operation& first = parts[0].operation;
  if (first.verb == Verb::all_reduce || first.verb == Verb::reduce_scatter) switch (first.type) {
      case ncclUint8: return reduce<uint8_t>(parts);
      case ncclInt64: return reduce<int64_t>(parts);
      case ncclFloat32: return reduce<float>(parts);
      case ncclFloat64: return reduce<double>(parts);
      case ncclBfloat16: return reduce<BFloat16>(parts);
    }
  const size_t bytes = first.bytes(), step = first.verb == Verb::all_gather ? bytes : 0;
  for (size_t r = 0; r < parts.size(); ++r)
    for (const Part& part : parts)
      if (const std::byte* from = parts[r].operation.from; from && part.operation.to)
        std::memmove(part.operation.to + r * step, from, bytes);
}

}  // namespace weft::emulated
