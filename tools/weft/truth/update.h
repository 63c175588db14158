// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the first step of an optimizer adds to a parameter, on one process with the whole gradient, in f64, by Eigen.
#include <array>

#include "tools/weft/truth/truth.h"

namespace weft::verify {

struct OptimizerRule {
  enum class Kind { sgd, adamw, muon };
  // By which a matrix is multiplied that Muon has made orthogonal; rows are those of the first dimension.
  enum class Adjust {
    none,
    original,        // sqrt(max(1, rows / columns))
    match_rms_adamw  // 0.2 sqrt(max(rows, columns))
  };
  Kind kind = Kind::sgd;
  double rate = 0;
  double weight_decay = 0;
  double clip = 0;        // the largest norm of all gradients together; 0: they are not clipped
  double epsilon = 1e-8;  // of AdamW
  Adjust adjust = Adjust::original;
  int iterations = 5;  // of Muon
  std::array<double, 3> coefficients = {3.4445, -4.7750, 2.0315};

  bool needs_whole() const { return kind == Kind::muon; }
};

// Without the weight decay. Muon needs a matrix; the others take any shape as one row.
Matrix update(const OptimizerRule& rule, const Matrix& gradient, const Rounding& rounding);

}  // namespace weft::verify
