#pragma once
// What moves memory between cards that each belong to one rank: NCCL, or in tests something that pretends to be it.
#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/call.h"

namespace weft {

// Every verb is called by all ranks in the same order, after they have agreed on the call, and only enqueued: it begins
// when what this rank has enqueued so far is done, and what this rank enqueues after `await` begins when it is done.
class CardExchange {
 public:
  using Ticket = uint64_t;

  virtual ~CardExchange() = default;

  // The first counts[0] bytes of rank 0's `mine`, then the first counts[1] of rank 1's, and so on, to `all`, on every
  // rank. `mine` may be in its place there already.
  virtual Ticket gather(const Call& call, const std::byte* mine, std::span<const size_t> counts, std::byte* all) = 0;

  // Bytes cuts[r] to cuts[r + 1] of `mine` go to rank r. What comes for this rank, which is as much from everybody, is
  // put one after the other in rank order, the place for what it keeps itself left alone.
  virtual Ticket swap(const Call& call, const std::byte* mine, std::span<const size_t> cuts, std::byte* received) = 0;

  // The reduction that the call names, in an order of its own, if library_reduces(call). `result` may be `mine`.
  virtual Ticket reduce(const Call& call, std::span<const std::byte> mine, std::byte* result) = 0;

  virtual void await(Ticket ticket) noexcept = 0;  // errors come to light in the next verb
};

}  // namespace weft
