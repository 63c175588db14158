// SPDX-License-Identifier: Apache-2.0
#pragma once
// The first half of a collective that is run in two.
#include <memory>
#include <optional>
#include <utility>

#include "weft/collectives/collective_call.h"
#include "weft/engine/tensor/error.h"

namespace weft {

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
