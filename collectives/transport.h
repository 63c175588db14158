#pragma once
// What a group of ranks needs of the machinery that connects them: two ways to look at each other's memory, and
// messages.
#include <functional>
#include <memory>
#include <span>

#include "collectives/call.h"

namespace weft {

// A callable that is only borrowed for the duration of a call, so passing a lambda allocates nothing.
template <class Signature> class FunctionRef;
template <class... Arguments> class FunctionRef<void(Arguments...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> && std::is_invocable_v<F&, Arguments...>)
      FunctionRef(F&& f)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        invoke_([](void* object, Arguments... arguments) {
          (*static_cast<std::remove_reference_t<F>*>(object))(arguments...);
        }) {}
  void operator()(Arguments... arguments) const { invoke_(object_, arguments...); }

 private:
  void* object_;
  void (*invoke_)(void*, Arguments...);
};

class Transport {
 public:
  using Bytes = std::span<const std::byte>;

  // Part [first, last) of every rank's bytes: peers[r] is the address of byte `first` of rank r's. A rank that shows
  // fewer bytes has a peer pointer that is valid only up to its own end.
  struct Part {
    size_t first, last;
    std::span<const std::byte* const> peers;
  };
  using Read = FunctionRef<void(const Part&)>;
  // Writes to `to` what the bytes [first, last) of all ranks make together, element by element, peers in rank order.
  // `to` may be one of the peers' addresses; parts begin and end at multiples of 64 bytes, or at the end.
  using Fold = FunctionRef<void(const Part&, std::byte* to)>;

  // A meeting that has begun: `finish`, once, waits until all ranks have begun it and reads, as one part. If it is
  // `ready`, it need not wait; a transport that cannot tell says no.
  class Started {
   public:
    virtual ~Started() = default;
    virtual bool ready() const { return false; }
    virtual void finish(Read read) = 0;
  };

  // So many meetings of a group may be started and not finished.
  static constexpr size_t most_started = 256;

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual GlobalRank global(GroupRank rank) const = 0;
  virtual std::string description() const = 0;  // "threads (4 ranks)", ...

  // The one collective all others are made of: every rank shows `mine`, every rank reads what it wants of the others'.
  // `read` is called with consecutive parts in ascending order that together cover [0, longest); nobody's bytes change
  // before everybody has read. The call is compared across the group first; a mismatch, a deadline or a failed rank
  // ends it with a Fault. `longest` is the largest size any rank shows, the same number on every rank.
  virtual void meet(const Call& call, Bytes mine, size_t longest, Read read) = 0;

  // The same in two halves, between which the ranks may do anything else, meet included, and which they may finish in
  // any order. A rank that never finishes one keeps nobody waiting. `mine` is copied unless nobody else holds it.
  // Outlived by the transport.
  virtual std::unique_ptr<Started> start(const Call& call, Tensor mine, size_t longest) = 0;

  // A meeting with the same outcome on every rank: result = fold over all ranks' bytes. Every element is folded by one
  // rank only and then copied, so the work does not grow with the group and the bits agree by construction.
  // All sizes are equal; `result` may be `mine`, or memory from `allocate_common` that is everybody's result. This
  // version, for transports without a better one, lets everybody fold everything; the bits are the same.
  virtual void combine(const Call& call, Bytes mine, std::span<std::byte> result, Fold fold) {
    meet(call, mine, mine.size(), [&](const Part& part) { fold(part, result.data() + part.first); });
  }

  // The same for the sum, extreme or product that the call names, by an algorithm of the transport's own that may add
  // in any order. Whether there is one is the same on every rank.
  virtual bool combine_in_any_order(const Call&, Bytes, std::span<std::byte>) { return false; }

  // Messages between two ranks, in order per pair. `send` keeps a copy and does not wait for the receiver; `receive`
  // returns the sender's call.
  virtual void send(Call call, GroupRank to, Bytes bytes) = 0;
  virtual Call receive(Call call, GroupRank from, std::span<std::byte> bytes) = 0;

  // The ranks that give the same color form a new group, ordered by key and then by rank; none for a negative color.
  virtual std::unique_ptr<Transport> split(int color, int key, Site site) = 0;

  // What this rank is busy with outside of any call, such as writing a file; nothing, if empty. Returns what it was
  // busy with before. See Busy.
  virtual std::string busy_with(const std::string&) { return {}; }

  // Meets everybody for the last time: a rank that leaves early is noticed by those who still count on it.
  virtual void finalize(Site site) = 0;

  // Whether meet and combine may show memory of a card (call.device says which memory it is): then peers are device
  // pointers, which peers use through Backend verbs, and if it is another card than theirs through Backend::copy alone.
  // Messages are host memory.
  virtual bool shows_device_memory() const = 0;
  // Whether peers' memory of a card is that of this rank's own card and stream. Else their work is on other streams,
  // and the caller synchronizes its backend before it shows such memory and before its `read` or `fold` returns.
  virtual bool keeps_stream_order() const = 0;

  // Host memory that peers read in place, where other memory may have to be staged: for gradients.
  virtual StorageHandle allocate_shown(size_t bytes) = 0;

  // Host memory that all ranks of the group have in common, zeros at first; empty where they have none. Everybody calls
  // it together; it is there as long as anybody holds it.
  virtual StorageHandle allocate_common(size_t, Site) { return {}; }
};

// Something that ends the job on every rank, with a fixed exit code: docs/faults.md.
struct Fault : Error {
  int exit_code;
  Fault(int exit_code, const std::string& message) : Error(message), exit_code(exit_code) {}
};
// What a receiver says to a message that is not what it expects.
Fault wrong_message(const Call& sent, GlobalRank sender, const Call& expected, GlobalRank receiver);

namespace exit_codes {
constexpr int usage = 64, malformed_input = 65, missing_input = 66, exception = 70, premature_exit = 71, unwinding = 72,
              io = 74, configuration_differs = 78, deadline = 86, mismatch = 87, non_finite = 88, out_of_memory = 89,
              wrong_launcher = 90, peer_died = 91;
}

}  // namespace weft
