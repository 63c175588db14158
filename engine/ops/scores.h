#pragma once
// What contrastive losses need of the scores  z = scale q k' (+ shift)  of every row of q (m, d) with every row of k
// (n, d). The scores are never in memory all at once: they are computed tile by tile, and again for the gradients.
// Where gradients are themselves to be differentiated (Graph::create), they are made of plain operations instead, which
// keep all scores.
//
// `scale` and `shift` are scalars (). `excluded` is i64 (m, c): the columns that a row does not see, -1 for none.
#include "engine/tape.h"

namespace weft {

// log sum_j exp(z_ij) of every row: (m). That of nothing is -infinity, with zero gradients.
Var score_log_sum_exp(const Var& q, const Var& k, const Var& scale, const Var& excluded = {});
// The same of every row and then of every column: (m + n).
Var score_log_sum_exp_both(const Var& q, const Var& k, const Var& scale);
// sum_j log(1 + exp(z_ij)) of every row: (m).
Var score_softplus_sum(const Var& q, const Var& k, const Var& scale, const Var& shift);

}  // namespace weft
