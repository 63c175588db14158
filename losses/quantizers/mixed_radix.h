#pragma once
// Codes of several digits as one number, such as a code's index: number = sum over j of digit_j place_j.
#include <vector>

#include "engine/tensor.h"

namespace weft {

class MixedRadix {
 public:
  // Digit j is one of 0 .. levels[j] - 1. The first digit counts least, or most.
  enum class First : uint8_t { least, most };
  MixedRadix(const std::string& name, const std::vector<int64_t>& levels, First first);

  int64_t size() const { return size_; }                    // of numbers: 0 .. size - 1
  Tensor number(const Tensor& digits) const;                // whole floating (n, levels) to i64 (n)
  Tensor digits(const Tensor& numbers, DType dtype) const;  // i64 (...) to (..., levels)

 private:
  std::vector<double> levels_, places_;
  int64_t size_ = 1;
};

}  // namespace weft
