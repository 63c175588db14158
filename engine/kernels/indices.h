// SPDX-License-Identifier: Apache-2.0
#pragma once
// Numbers of rows, classes or columns, as kernels get them: with their bound. On the host they are checked here. On a
// card the kernel that reads them checks them, and can read them in no other way (cuda/checked_indices.cuh). The next
// wait for the card throws the same error.
#include "weft/engine/tensor/tensor.h"

namespace weft {

namespace cuda {
class CheckedIndices;
}

// What an error says. The strings must outlive the work of a card.
struct IndexNames {
  const char *op, *one;  // of one of them: "index", "target"
};
[[noreturn]] inline void fail_bad_index(IndexNames names, int64_t index, int64_t position, int64_t bound) {
  fail({names.op, ": ", names.one, " ", text(index), " at position ", text(position), " is not in 0..",
        text(bound - 1)});
}

class Indices {
 public:
  enum class Negative : bool { refused, none };  // none: a negative number names nothing

  Indices(IndexNames names, const Tensor& numbers, int64_t bound, Negative negative = Negative::refused)
      : names_(names), numbers_(numbers), bound_(bound), negative_(negative) {
    require(numbers.dtype() == DType::i64, names.op, ": ", names.one, " must be i64, not ", numbers.dtype());
    if (device() != Device::cpu) return;
    for (int64_t i = 0; i < size(); ++i)
      if (const int64_t index = on_host()[i]; !allows(index)) fail_bad_index(names, index, i, bound);
  }

  int64_t size() const { return numbers_.size(); }
  const Shape& shape() const { return numbers_.shape(); }
  Device device() const { return numbers_.device(); }
  const int64_t* on_host() const {
    require(device() == Device::cpu, names_.op, ": the host cannot read indices on ", device());
    return numbers_.data<int64_t>();
  }

 private:
  friend class cuda::CheckedIndices;

  bool allows(int64_t index) const { return index < bound_ && (index >= 0 || negative_ == Negative::none); }

  IndexNames names_;
  Tensor numbers_;
  int64_t bound_;
  Negative negative_;
};

}  // namespace weft
