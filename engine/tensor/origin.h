// SPDX-License-Identifier: Apache-2.0
#pragma once
// Records whether values were computed from tracked values of a tape. Views, copies and casts have the origin of their
// source, and results of ops that are not recorded have that of their inputs. A plain collective returns no gradients
// to any rank, so the tape rejects its result as the input of an op where gradients flow. detach() gives values without
// an origin.
#include "weft/engine/tensor/tensor.h"

namespace weft {

struct Origin {
  static constexpr uint32_t any_tape = ~uint32_t{0} >> 1;
  uint32_t tape = 0;                 // the number of the tape; 0 if the values depend on no tracked ones
  const char* collective = nullptr;  // the plain collective that the values have passed since, if any

  static Origin of(const Tensor& x) {
    return {x.origin_ >> 1, x.origin_ & 1 ? x.storage_->collective.load(std::memory_order_relaxed) : nullptr};
  }
  // A quicker test: 0 if there is no origin, odd if it has a collective.
  static uint32_t bits_of(const Tensor& x) { return x.origin_; }

  static void set(Tensor& x, Origin origin) {
    x.origin_ = origin.tape << 1;
    if (!origin.collective || !x.storage_) return;
    x.origin_ |= 1;
    x.storage_->collective.store(origin.collective, std::memory_order_relaxed);
  }
};

}  // namespace weft
