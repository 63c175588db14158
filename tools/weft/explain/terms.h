// SPDX-License-Identifier: Apache-2.0
#pragma once
// Gradients of all ranks and micro-batches, and how they go into sums.
#include <Eigen/QR>
#include <vector>

#include "tools/weft/truth/sample.h"

namespace weft::verify {

// Numbers, and how far off they may be.
struct Fitted {
  Eigen::VectorXd values, known_to;
};

class Terms {
 public:
  explicit Terms(std::vector<const Matrix*> terms);  // (1, n) each

  Eigen::Index count() const { return std::ssize(terms_); }
  const Matrix& operator[](Eigen::Index i) const { return *terms_[static_cast<size_t>(i)]; }
  // Few elements are explained by many weights, and terms that depend on each other by many sets of them.
  bool tell() const { return elements() >= 4 * count() && solver_.rank() == count(); }

  Matrix sum(const Eigen::VectorXd& weights) const;
  // The weights of a sum that is stored with this precision, by least squares.
  Fitted fitted(const Matrix& sum, double epsilon) const;

 private:
  Eigen::Index elements() const { return (*this)[0].size(); }

  std::vector<const Matrix*> terms_;
  Eigen::ColPivHouseholderQR<Eigen::MatrixXd> solver_;  // of the terms' products with each other
};

}  // namespace weft::verify
