// SPDX-License-Identifier: Apache-2.0
#pragma once
// The collectives in two halves that a rank has begun and not ended, and for which it still has to send. It goes on
// with them whenever it waits for other ranks or for its card, since other ranks may wait for it.
#include <functional>
#include <vector>

#include "weft/collectives/transport.h"

namespace weft {

class Unfinished {
 public:
  void add(Transport::Request& call) { calls_.push_back(&call); }
  void remove(const Transport::Request& call) { std::erase(calls_, &call); }
  bool empty() const { return calls_.empty(); }
  void throw_failure() const { failure_(); }  // if another rank has failed
  void take_failures_from(std::function<void()> failure) { failure_ = std::move(failure); }
  void go_on() {
    for (size_t i = 0; i < calls_.size(); ++i) calls_[i]->ready();  // which may begin others, and end them
  }

 private:
  std::function<void()> failure_ = [] {};
  std::vector<Transport::Request*> calls_;
};

}  // namespace weft
