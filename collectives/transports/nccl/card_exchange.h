// SPDX-License-Identifier: Apache-2.0
#pragma once
// Moves memory between cards that each belong to one rank. NCCL implements it, and the tests have a fake.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/collectives/transport.h"

namespace weft {

// All ranks call the verbs in the same order, after they have agreed on the call. A verb only enqueues its work: that
// begins after the work of this rank up to a mark, and work that this rank enqueues after `await` begins when it is
// done.
class CardExchange {
 public:
  using Ticket = uint64_t;
  using Mark = void*;
  using Address = std::array<std::byte, 128>;

  virtual ~CardExchange() = default;

  // Before any verb, every rank connects to the address of rank 0, which it has been told. This does not wait.
  virtual Address address() = 0;
  virtual void connect(const Call& call, const Address& address) = 0;

  // What this rank has enqueued so far. A mark is for one verb.
  virtual Mark mark() = 0;

  // Writes to `all`, on every rank, the first counts[0] bytes of rank 0's `mine`, then the first counts[1] bytes of
  // rank 1's, and so on. `mine` may already be at its place in `all`.
  virtual Ticket gather(const Call& call, Mark after, const std::byte* mine, std::span<const size_t> counts,
                        std::byte* all) = 0;

  // Sends the bytes `out[r]` of `mine` to rank r, for every other rank. Writes to `received` what they send to this
  // rank, in rank order, counts[r] bytes from rank r. counts[r] of this rank itself is 0.
  virtual Ticket swap(const Call& call, Mark after, const std::byte* mine, std::span<const Transport::Range> out,
                      std::span<const size_t> counts, std::byte* received) = 0;

  // The call's reduction, in any order, for calls for which library_reduces holds; of a reduce_scatter, this rank's
  // share. `result` may be `mine`.
  virtual Ticket reduce(const Call& call, Mark after, std::span<const std::byte> mine, std::span<std::byte> result) = 0;

  // Connecting and enqueuing may have to wait for peers. `is_idle` returns whether both are done and the next verb need
  // not wait, and lets them go on; `settle` waits until they are done.
  virtual bool is_idle() = 0;
  virtual void settle() = 0;

  // Of what is settled.
  virtual bool is_done(Ticket ticket) = 0;
  virtual void await(Ticket ticket) noexcept = 0;  // the next verb reports errors

  // Ends it, once peers have all that they need of this rank. Throws a fault that no call has thrown.
  virtual void close() {}
};

}  // namespace weft
