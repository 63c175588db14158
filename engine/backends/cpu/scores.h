#pragma once
// Sums over the scores z = scale q k' + shift of every row of q with every row of k, and their gradients, one thread.
// Scores exist one tile at a time, in L2; the gradients compute them again.
//
// Bits. A row's sum depends on that row of q, on k, and on whether all scores are known to be at most 40: without a
// running maximum then, else with one. So other rows of q matter only by how long the longest is. The same holds for
// its gradient. Sums over a column run through the rows of q in ascending tiles.
#include <cstdint>

#include "engine/backend.h"

namespace weft::cpu {

template <class T> struct ScoreMatrix {
  int64_t m, n, d;  // q is m x d, k is n x d
  const T *q, *k;
  T scale, shift;
  const int64_t* excluded;  // for each row so many columns, negative for none
  int64_t excluded_count;
  const int64_t* targets;  // a column for each row, negative for none; or null
};

/// m sums of rows; for log_sum_exp_both, n of columns behind them; then, if there are targets, m scores of those, but
/// for softplus, where a target's score counts in its row with the other sign.
template <class T> void score_sums(ScoreSum kind, const ScoreMatrix<T>& z, double* sums);

/// What is not wanted is null.
template <class T> struct ScoreSlopes { T *q, *k, *scale, *shift; };

/// From the sums and their cotangents g.
template <class T>
void score_gradients(ScoreSum kind, const ScoreMatrix<T>& z, const double* sums, const double* g,
                     const ScoreSlopes<T>& to);

}  // namespace weft::cpu
