// SPDX-License-Identifier: Apache-2.0
#pragma once
// Prepares the data of the next step while the current one computes, if a core is free for that. The values, and their
// order, are the same either way.
#include <functional>
#include <future>

#include "weft/collectives/communicator.h"

namespace weft {

// Whether each rank of this machine has a core besides its own. All ranks call it.
bool has_spare_core(Communicator& comm);

template <class T> class Ahead {
 public:
  // `make` returns the values one after the other. It runs on a thread of its own if `spare_core`.
  Ahead(std::function<T()> make, bool spare_core) : make_(std::move(make)), spare_core_(spare_core) {}

  T next() {
    if (!spare_core_) return make_();
    T value = coming_.valid() ? coming_.get() : make_();
    coming_ = std::async(make_one, this);
    return value;
  }

 private:
  static T make_one(Ahead* ahead) { return ahead->make_(); }

  std::function<T()> make_;
  const bool spare_core_;
  std::future<T> coming_;  // its destructor waits
};

}  // namespace weft
