// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/explain/candidate.h"

namespace weft::verify {

void add_if_right(std::vector<Described>& all, const Given& given, const Candidate& candidate) {
  const char* const repair =
      "compare the order in which ranks write the gradient into a buffer with the order in which they read it";
  constexpr double far = 0.1;  // which saves the rounding of what is not near
  const std::vector<Matrix> exact = candidate.predicted(given.parameter);
  for (size_t r = 0; r < given.ranks(); ++r) {
    const Matrix& made = given.made.tensors[r];
    if (exact[r].size() != made.size() || (exact[r] - made).norm() > far * made.norm()) return;
  }
  const double error = given.error(candidate.predicted);
  if (error <= limit) all.push_back({candidate.text, error, repair});
}

}  // namespace weft::verify
