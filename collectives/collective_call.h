// SPDX-License-Identifier: Apache-2.0
#pragma once
// One collective on one rank: the tensor that it exposes, and what it copies or folds from the tensors of other ranks.
// It runs as a whole, or in two halves.
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "weft/collectives/transport.h"
#include "weft/engine/tensor/origin.h"
#include "weft/engine/tensor/pool.h"

namespace weft {

Origin origin_of_result(const Tensor& x, const Call& call);  // of a collective on x

class CollectiveCall {
 public:
  template <class T> using List = std::vector<T, pool::Allocator<T>>;  // by rank
  // What moves, in bytes: Transport::Ranges, and where in the result each rank's bytes land. Where bytes of several
  // ranks land on the same place, the result is their reduction.
  struct Moves {
    List<Transport::Range> of_peers, by_peers;
    List<size_t> to;

    // How the bytes of the ranks land in a result of so many bytes: side by side so that they fill it, as in all verbs
    // of verbs.h, all on the whole of it, or in any other way.
    enum class Landing : uint8_t { nothing, side_by_side, on_each_other, anyhow };
    Landing landing(size_t bytes_of_result) const;
  };

  // `longest` is the largest number of bytes that any rank exposes.
  CollectiveCall(const Call& call, Tensor x, size_t longest, Tensor y, Moves moves);
  // A reduction of the tensors of these ranks.
  CollectiveCall(const Call& call, Tensor x, Tensor y, List<int> sources);

  // The whole collective, or its first half; then `finish` gives the result. Reductions need to know their terms.
  Tensor run(Transport& transport, const Transport::Terms* terms = nullptr);
  std::unique_ptr<Transport::Request> start(Transport& transport, const Transport::Terms* terms = nullptr);
  Tensor finish(Transport::Request& started);

 private:
  void prepare(const Transport& transport);
  Transport::Ranges ranges() const { return {moves_.of_peers, moves_.by_peers}; }
  void read(const Transport::Part& part);
  void copy(const Transport::Part& part, int rank);
  Fold fold(const Transport& transport) const;
  Tensor result();
  void put_in_place(Tensor& result);

  Call call_;
  Origin origin_;  // of the result
  Tensor x_;
  size_t longest_ = 0;
  Tensor y_;
  Tensor staging_;                // where bytes land: y_, or host memory if the transport does not expose y's device
  bool must_synchronize_ = true;  // whether to wait for the card before peers read its memory, and after reading theirs
  Moves moves_;
  List<int> sources_;    // the ranks of which this one reads anything
  List<size_t> places_;  // where bytes land that are received one rank's after the other's, and then put there
};

// A collective that this rank has started, and whose input other ranks may be reading. `wait` may be called once; it
// returns the result when all ranks have started the collective. No rank waits for one that destroys this instead.
class Pending {
 public:
  Pending(CollectiveCall collective, Transport& transport, const Transport::Terms* terms = nullptr)
      : call_(std::move(collective)), started_(call_->start(transport, terms)) {}
  bool ready() const { return started_ && started_->ready(); }  // if true, `wait` returns at once
  Tensor wait() {
    require(started_ != nullptr, "wait: this collective has been waited for already");
    CollectiveCall collective = *std::exchange(call_, std::nullopt);  // frees the call's memory on return
    return collective.finish(*std::exchange(started_, nullptr));
  }

 private:
  std::optional<CollectiveCall> call_;
  std::unique_ptr<Transport::Request> started_;
};

}  // namespace weft
