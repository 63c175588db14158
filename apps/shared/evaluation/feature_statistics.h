// SPDX-License-Identifier: Apache-2.0
#pragma once
// What features tell about a network without any labels: whether it still tells pictures apart.
#include "weft/engine/tensor/tensor.h"

namespace weft {

struct FeatureStatistics {
  // RankMe (Garrido et al., arXiv 2210.02885): exp of the entropy of the singular values. From 1, if all rows are
  // multiples of one, to the number of features.
  double rank;
  double norm;    // the mean length of a row
  double spread;  // of the rows' directions: 1 if they cancel each other, 0 if all are the same
};
// Of (samples, features), floating. Of many samples it takes 256, so that a rank is at most that.
FeatureStatistics statistics_of(const Tensor& rows);

// The place of each row in the plane in which the rows' directions differ most: f64 (samples, 2).
Tensor in_a_plane(const Tensor& rows);

}  // namespace weft
