// SPDX-License-Identifier: Apache-2.0
#pragma once
// The interface of what connects a group of ranks: an exchange, a reduction, and messages.
#include <memory>
#include <span>

#include "weft/collectives/byte_ranges.h"
#include "weft/collectives/call.h"
#include "weft/collectives/function_ref.h"

namespace weft {

struct Fold;
class Unfinished;
class Transport {
 public:
  using Bytes = std::span<const std::byte>;

  // By messages, so few bytes of a rank go with its call when ranks compare their calls, and no more messages follow.
  static constexpr size_t small_call = 32;

  using Range = ByteRange;
  using Ranges = ByteRanges;
  using Part = BytePart;
  using Read = FunctionRef<void(const Part&)>;

  // The terms of the sums, or other reductions, that ranks want of each other's tensors. Each rank reads the same bytes
  // of all its terms.
  struct Terms {
    FunctionRef<bool(int reader, int source)> reads;
    std::span<const Range> slices;  // which bytes each rank reads; all of them if there are none
    bool to_all = false;            // every rank reads all bytes of every rank
    bool in_any_order = false;      // their order is free, and all slices are of one size
  };
  // And how this rank folds its own.
  struct Reduction : Terms {
    const Fold& fold;
  };

  // A collective that this rank has started. `finish` must be called at most once: it waits until all ranks have
  // started the collective, then reads all bytes as one part. If `ready` returns true it need not wait; a transport
  // that does not know returns false. Asking also lets the collective go on.
  class Request {
   public:
    virtual ~Request() = default;
    virtual bool ready() { return false; }
    virtual void finish(Read read) = 0;
  };

  // The collectives that this rank has started, in any group, and that cannot end without it.
  virtual std::shared_ptr<Unfinished> unfinished() = 0;

  // How many collectives of a group may be started and not finished at a time.
  static constexpr size_t max_started = 256;

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual GlobalRank global(GroupRank rank) const = 0;
  virtual std::string description() const = 0;  // "threads (4 ranks)", ...
  // How data move, if a link has been measured to choose it.
  virtual std::string choices(bool /*of_leaders*/ = false) const { return {}; }

  // The collective that all others are made of: every rank exposes its bytes `mine`, and reads other ranks'. `read` is
  // called with consecutive parts in ascending order that together cover [0, longest), or the ranges, if there are any.
  // No rank's bytes change before all ranks have read them. The ranks first compare their calls; a mismatch, a deadline
  // or a failed rank ends the call with a Fault. `longest` is the largest size that any rank exposes, the same number
  // on every rank. `expose` is the exchange in which every rank reads all bytes of all ranks.
  virtual void exchange(const Call& call, Bytes mine, size_t longest, Ranges ranges, Read read) = 0;
  void expose(const Call& call, Bytes mine, size_t longest, Read read) { exchange(call, mine, longest, {}, read); }

  // An exchange in two halves. Between them a rank may do anything else, other collectives included, and ranks may
  // finish several in any order. No rank waits for one that never finishes. `mine` is copied unless the caller has
  // given up its only reference. The transport must outlive the result.
  virtual std::unique_ptr<Request> start(const Call& call, Tensor mine, size_t longest, Ranges ranges = {}) = 0;

  // The reduction of what this rank reads, in `result`; nothing is written if it reads nothing. Ranks that are read
  // expose bytes of one size. Ranks may fold for each other, so the work and the messages need not grow with the group;
  // the bits are the same (fold_order.h), unless terms are wanted in any order. `result` may be `mine`; if all ranks
  // read everything, it may also be memory from `allocate_common`, which then is the result of all ranks. This default
  // is an exchange in which every rank folds for itself.
  virtual void reduce(const Call& call, Bytes mine, std::span<std::byte> result, const Reduction& reduction);

  // A reduction in two halves. The result is there when `finish` returns; it calls no `read`.
  virtual std::unique_ptr<Request> start_reduction(const Call& call, Tensor mine, Tensor result,
                                                   const Reduction& reduction);

  // Whether `reduce` can use an algorithm of a communication library, which adds in an order of its own.
  virtual bool reduces_in_any_order(const Call&, size_t /*bytes*/) const { return false; }

  // Messages between two ranks, in order per pair. `send` keeps a copy and does not wait for the receiver; `receive`
  // returns the sender's call.
  virtual void send(Call call, GroupRank to, Bytes bytes) = 0;
  virtual Call receive(Call call, GroupRank from, std::span<std::byte> bytes) = 0;

  // The ranks that give the same color form a new group, ordered by key and then by rank; none for a negative color.
  virtual std::unique_ptr<Transport> split(int color, int key, Site site) = 0;

  // Sets what this rank is busy with outside of any call, such as writing a file; nothing, if empty. Returns what it
  // was busy with before. See Busy.
  virtual std::string busy_with(const std::string&) { return {}; }

  // The last call of the group. The other ranks notice if a rank leaves without it.
  virtual void finalize(Site site) = 0;

  // Whether `exchange` and `reduce` accept the memory of a card (see call.device). Then peers are device pointers. A
  // rank uses them through Backend verbs, or through Backend::copy alone if they are on another card than its own.
  // Messages are in host memory.
  virtual bool shows_device_memory() const = 0;
  // Whether peers' device memory is in the order of this rank's own stream. If not, it is in the order of other
  // streams, and the caller synchronizes its backend before it exposes device memory and before its `read` returns, and
  // Fold does so.
  virtual bool keeps_stream_order() const = 0;

  // Host memory that peers read in place, such as for gradients. Other memory may have to be staged.
  virtual StorageHandle allocate_shown(size_t bytes) = 0;

  // Host memory that all ranks of the group share, zeros at first; empty if they cannot share memory. All ranks call
  // this together. The memory lives as long as any rank holds it.
  virtual StorageHandle allocate_common(size_t, Site) { return {}; }
};

}  // namespace weft
