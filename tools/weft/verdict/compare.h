// SPDX-License-Identifier: Apache-2.0
#pragma once
// Two files or folders of tensors, such as what two implementations computed from the same inputs, held against each
// other in order, to find where they begin to differ.
#include <filesystem>
#include <string>
#include <vector>

#include "tools/weft/verdict/verdict.h"

namespace weft::verify {

// How far apart two tensors of one name are. `error` is the largest distance of two elements, as a multiple of the
// rounding of the tensors' largest element in the coarser of their types.
struct Pair {
  Comparison numbers;
  std::string mismatch;  // what keeps them from being compared: "only in OURS", "shapes (2, 3) and (3, 2)"
  bool differs(double limit) const { return !mismatch.empty() || numbers.error > limit; }
};

struct Difference {
  std::vector<Pair> pairs;  // in the order of their names, in which numbers count as numbers
  double limit;
  size_t compared() const;
  size_t differing() const;
  const Pair* first() const;  // that differs; null if none does
  Outcome outcome() const;
};

// Files are .safetensors, .npy or .npz, of any type that these can hold; folders are compared file by file.
Difference compare(const std::filesystem::path& ours, const std::filesystem::path& theirs, double limit);

std::string text_of(const Difference& difference);
std::string json_of(const Difference& difference);

}  // namespace weft::verify
