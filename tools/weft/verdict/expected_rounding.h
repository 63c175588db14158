// SPDX-License-Identifier: Apache-2.0
#pragma once
// How far off a tensor may be by rounding alone: as a whole, in a row, a column or an element of its own, and by a
// factor that all of it has. Roundings of many elements are hardly ever a factor together, so one shows where none of
// its elements does.
#include "tools/weft/truth/sample.h"

namespace weft::verify {

class ExpectedRounding {
 public:
  // Of what is predicted without rounding, in rows of so many elements, and stored with this precision.
  ExpectedRounding(const Matrix& exact, Eigen::Index columns, double epsilon);
  // One more prediction, with inputs and intermediate results that are off by the precision.
  void add(const Matrix& exact, const Matrix& rounded);
  void finish(const Matrix& exact);

  // The largest multiple of what is expected that another tensor is off; `scale` times as much is expected.
  double error(const Matrix& dumped, const Matrix& predicted, double scale = 1) const;
  double whole() const { return whole_; }
  double of_element(Eigen::Index i) const;  // of many, which of them is off by most

  // The smallest relative mistakes that show: a factor, and what a row is off by, in whichever it shows least.
  double factor_shown(double limit) const;
  double row_shown(const Matrix& exact, double limit) const;

 private:
  double largest_part(const Matrix& difference) const;

  double epsilon_;
  int samples_ = 0;
  Matrix squares_;     // of how far each element usually is off
  double factor_ = 0;  // likewise, of what all elements have in common
  double whole_ = 0;
};

}  // namespace weft::verify
