// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums over the scores z = scale q k' + shift of every row of q with every row of k, and their gradients, on one
// thread. Only one tile of scores is in memory at a time, in L2. The gradients compute the scores again.
//
// Bits. The sum of a row depends on that row of q, on k, and on whether all scores are known to be at most 40; only
// otherwise is there a running maximum. So the other rows of q matter only by the length of the longest. The same holds
// for the gradient. Sums over a column add the rows of q in ascending tiles.
#include <cstdint>

#include "weft/engine/kernels/backend.h"

namespace weft::cpu {

template <class T> struct ScoreMatrix {
  int64_t m, n, d;  // q is m x d, k is n x d
  const T *q, *k;
  T scale, shift;
  const int64_t* excluded;  // excluded_count columns for each row; negative for none
  int64_t excluded_count;
  const int64_t* targets;  // a column for each row; negative for none; may be null
};

/// Writes m sums of rows; for log_sum_exp_both, then n sums of columns; then, if there are targets, their m scores. For
/// softplus there are no scores of targets: a target's score is in its row's sum with the opposite sign.
template <class T> void score_sums(ScoreSum kind, const ScoreMatrix<T>& z, double* sums);

/// Pointers are null for gradients that are not needed.
template <class T> struct ScoreSlopes { T *q, *k, *scale, *shift; };

/// Computes the gradients from the sums and their cotangents g.
template <class T>
void score_gradients(ScoreSum kind, const ScoreMatrix<T>& z, const double* sums, const double* g,
                     const ScoreSlopes<T>& to);

}  // namespace weft::cpu
