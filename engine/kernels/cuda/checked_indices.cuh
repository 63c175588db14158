// SPDX-License-Identifier: Apache-2.0
#pragma once
// How kernels read indices. Each is compared with its bound before it is used; a bad one reads as -1, which a kernel
// skips, and is recorded for the next wait.
#include "weft/engine/kernels/cuda/launch.cuh"
#include "weft/engine/kernels/indices.h"

namespace weft::cuda {

class CheckedIndices {
 public:
  CheckedIndices() = default;  // none
  explicit CheckedIndices(const Indices& indices)
      : numbers_(indices.numbers_.data<int64_t>()),
        bound_(indices.bound_),
        none_allowed_(indices.negative_ == Indices::Negative::none),
        names_(indices.names_),
        record_(&context().bad_index()),
        verb_(context().next_verb()) {}

  CheckedIndices from(int64_t position) const {  // the indices from this position on
    CheckedIndices rest = *this;
    rest.first_ += position;
    return rest;
  }
  WEFT_HD bool defined() const { return numbers_ != nullptr; }
  __device__ int64_t operator[](int64_t i) const {  // -1: bad, or none
    if (!defined()) return -1;
    const int64_t index = numbers_[first_ + i];
    if (index >= 0 && index < bound_) return index;
    if (index >= 0 || !none_allowed_) record({verb_, first_ + i, index, bound_, names_});
    return -1;
  }

 private:
  // Keeps the first: that of the earliest verb, and of this one that with the lowest position, whatever the order of
  // threads. Its members are written before `verb`, which tells that they are there.
  __device__ void record(const BadIndex& bad) const {
    volatile BadIndex& first = *record_;
    const auto comes_first = [&] {
      return first.verb == 0 || (first.verb == bad.verb && bad.position < first.position);
    };
    while (comes_first()) {
      if (atomicCAS(&record_->writers, 0u, 1u) != 0) continue;
      __threadfence_system();
      if (comes_first()) {
        first.position = bad.position;
        first.index = bad.index;
        first.bound = bad.bound;
        first.names.op = bad.names.op;
        first.names.one = bad.names.one;
        __threadfence_system();
        first.verb = bad.verb;
      }
      __threadfence_system();
      atomicExch(&record_->writers, 0u);
    }
  }

  const int64_t* numbers_ = nullptr;
  int64_t first_ = 0, bound_ = 0;
  bool none_allowed_ = false;
  IndexNames names_ = {};
  BadIndex* record_ = nullptr;
  uint64_t verb_ = 0;
};

}  // namespace weft::cuda
