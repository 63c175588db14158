// SPDX-License-Identifier: Apache-2.0
#pragma once
// The first fault that has ended collectives on a rank's card. What the card has computed since then is not to be read,
// so every wait for it throws the fault, until the rank connects its card again.
#include <mutex>
#include <optional>

#include "weft/collectives/fault.h"

namespace weft {

// The groups of a rank share it, and their watches set it.
class CardFault {
 public:
  void set(const Fault& fault) {
    const std::lock_guard lock(mutex_);
    if (!fault_) fault_ = fault;
  }
  template <class Before> void throw_it(const Before& before) {  // if there is one; before that, calls before()
    const std::lock_guard lock(mutex_);
    if (!fault_) return;
    thrown_ = true;
    before();
    throw *fault_;
  }
  bool has_been_thrown() {
    const std::lock_guard lock(mutex_);
    return thrown_;
  }

 private:
  std::mutex mutex_;
  std::optional<Fault> fault_;
  bool thrown_ = false;
};

}  // namespace weft
