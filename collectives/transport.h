// SPDX-License-Identifier: Apache-2.0
#pragma once
// The interface of what connects a group of ranks: two ways to read each other's memory, and messages.
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
  // Writes to `to` the elementwise reduction (fold.h) of the bytes [first, last) of all ranks. `to` may be one of
  // the peers' addresses. Parts begin and end at multiples of 64 bytes, or at the end.
  using Fold = FunctionRef<void(const Part&, std::byte* to)>;
  // Which rank reads the whole tensor of which, and what it makes of them: the fold. Any rank may write another's.
  using Reads = FunctionRef<bool(int reader, int source)>;
  struct Folds {
    Reads reads;
    FunctionRef<void(int reader, const Part&, std::byte* to)> write;
  };

  // Every reader reads the same bytes of all its sources: slices[reader], or all if there are none.
  struct Sums {
    Reads reads;
    std::span<const Range> slices;
    const weft::Fold& fold;
  };

  // A collective that this rank has started. `finish` must be called at most once: it waits until all ranks have
  // started the collective, then reads all bytes as one part. If `ready` returns true it need not wait; a transport
  // that does not know returns false. Asking also lets the collective go on.
  class Started {
   public:
    virtual ~Started() = default;
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
  virtual std::string description() const = 0;        // "threads (4 ranks)", ...
  virtual std::string choices() const { return {}; }  // how data move, if a link has been measured to choose it

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
  virtual std::unique_ptr<Started> start(const Call& call, Tensor mine, size_t longest, Ranges ranges = {}) = 0;

  // Sums in two halves, as of combine_near_first. What this rank reads is in `result` when `finish` returns; it calls
  // no `read`. Takes `mine`, or leaves it and returns null on every rank if `start` is as good.
  virtual std::unique_ptr<Started> start_sum(const Call&, Tensor& /*mine*/, Tensor /*result*/, const Sums&) {
    return nullptr;
  }

  // A reduction with the same result on every rank: result = fold over the bytes of all ranks. One rank folds a given
  // element and the others copy it, so the work does not grow with the group, and all ranks get the same bits. All
  // sizes are equal. `result` may be `mine`, or memory from `allocate_common`, which then is the result of all ranks.
  // In this default version every rank folds all elements; the bits are the same.
  virtual void combine(const Call& call, Bytes mine, std::span<std::byte> result, Fold fold) {
    expose(call, mine, mine.size(), [&](const Part& part) { fold(part, result.data() + part.first); });
  }

  // A reduction with a result of its own on every rank that reads any. Ranks that are read expose as many bytes as the
  // result has. Returns false on every rank if an exchange is as good, in which every rank folds for itself.
  virtual bool combine_for_each(const Call&, Bytes, std::span<std::byte>, const Folds&) { return false; }

  // A reduction for which ranks that are near each other, such as those of a node, add their terms first; every rank
  // exposes the same number of bytes. Returns false on every rank if none are near.
  virtual bool combine_near_first(const Call&, Bytes, std::span<std::byte>, const Sums&) { return false; }

  // The call's reduction by an algorithm of the transport's own, which may add in any order; of a reduce_scatter, in
  // equal shares, this rank's share. Returns false on every rank if there is none.
  virtual bool combine_in_any_order(const Call&, Bytes, std::span<std::byte>) { return false; }

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

  // Whether `expose` and `combine` accept the memory of a card (see call.device). Then peers are device pointers. A
  // rank uses them through Backend verbs, or through Backend::copy alone if they are on another card than its own.
  // Messages are in host memory.
  virtual bool shows_device_memory() const = 0;
  // Whether peers' device memory is in the order of this rank's own stream. If not, it is in the order of other
  // streams, and the caller synchronizes its backend before it exposes device memory and before its `read` or `fold`
  // returns.
  virtual bool keeps_stream_order() const = 0;

  // Host memory that peers read in place, such as for gradients. Other memory may have to be staged.
  virtual StorageHandle allocate_shown(size_t bytes) = 0;

  // Host memory that all ranks of the group share, zeros at first; empty if they cannot share memory. All ranks call
  // this together. The memory lives as long as any rank holds it.
  virtual StorageHandle allocate_common(size_t, Site) { return {}; }
};

}  // namespace weft
