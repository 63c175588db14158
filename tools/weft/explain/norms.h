// SPDX-License-Identifier: Apache-2.0
#pragma once
// Norms other than the usual one, by which gradients may be clipped.
#include <optional>
#include <vector>

#include "tools/weft/verdict/verdict.h"

namespace weft::verify {

struct Norm {
  const char* name;                    // "the norm p = 3"; of the usual one, the norm p = 2, it is empty
  double (*together)(double, double);  // of the powers of two gradients
  double (*power)(const Matrix&);
  double (*root)(double);
};
const std::vector<Norm>& norms();  // the usual one is the first

// Which norm it is that a job took of all gradients, if it is another one on all ranks.
std::optional<Described> described(const NormEvidence& norm, const Dump& dump);

}  // namespace weft::verify
