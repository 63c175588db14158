// SPDX-License-Identifier: Apache-2.0
#pragma once
// Moves memory between cards that each belong to one rank. NCCL implements it, and the tests have a fake.
#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/collectives/transport.h"

namespace weft {

// All ranks call the verbs in the same order, after they have agreed on the call. A verb only enqueues its work: that
// begins after all work that this rank has enqueued before, and work that this rank enqueues after `await` begins when
// it is done.
class CardExchange {
 public:
  using Ticket = uint64_t;

  virtual ~CardExchange() = default;

  // Writes to `all`, on every rank, the first counts[0] bytes of rank 0's `mine`, then the first counts[1] bytes of
  // rank 1's, and so on. `mine` may already be at its place in `all`.
  virtual Ticket gather(const Call& call, const std::byte* mine, std::span<const size_t> counts, std::byte* all) = 0;

  // Sends the bytes `out[r]` of `mine` to rank r, for every other rank. Writes to `received` what they send to this
  // rank, in rank order, counts[r] bytes from rank r. counts[r] of this rank itself is 0.
  virtual Ticket swap(const Call& call, const std::byte* mine, std::span<const Transport::Range> out,
                      std::span<const size_t> counts, std::byte* received) = 0;

  // The call's reduction, in any order, for calls for which library_reduces holds; of a reduce_scatter, this rank's
  // share. `result` may be `mine`.
  virtual Ticket reduce(const Call& call, std::span<const std::byte> mine, std::span<std::byte> result) = 0;

  virtual bool is_done(Ticket ticket) = 0;
  virtual void await(Ticket ticket) noexcept = 0;  // the next verb reports errors
};

}  // namespace weft
