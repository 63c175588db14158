// SPDX-License-Identifier: Apache-2.0
#pragma once
// Converts codes of several digits to one number and back: number = sum over j of digit_j place_j. Quantizers use it
// for the index of a code.
#include <vector>

#include "weft/engine/tensor/tensor.h"

namespace weft {

class MixedRadix {
 public:
  // Digit j is one of 0 .. levels[j] - 1. `first` says whether the first digit is the least or the most significant.
  enum class First : uint8_t { least, most };
  MixedRadix(const std::string& name, const std::vector<int64_t>& levels, First first);

  int64_t size() const { return size_; }                    // numbers are 0 .. size - 1
  Tensor number(const Tensor& digits) const;                // (n, levels) of a floating type to i64 (n)
  Tensor digits(const Tensor& numbers, DType dtype) const;  // i64 (...) to (..., levels)

 private:
  std::vector<double> levels_, places_;
  int64_t size_ = 1;
};

}  // namespace weft
