// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums over the scores  z = scale q k' (+ shift)  of every row of q (m, d) with every row of k (n, d), for contrastive
// losses. The scores are never in memory as a whole: they are computed tile by tile, and again for the gradients. If
// gradients are to be differentiated again (Graph::create), they are composed of other ops, which keep all scores.
//
// `scale` and `shift` are scalars (). `excluded` is i64 (m, c): the columns left out of each row's sum, -1 for none.
// `targets` is i64 (m): a column for each row, -1 for none. With targets, the log-sum-exps are followed by m values:
// the score of every row with its target, or 0 if it has none. Columns are checked as
// indices are (engine/ops/index.h).
//
// Results are f64 for all types of rows, and a log-sum-exp is never less than its target's score: a loss is the
// difference of the two, which is often much smaller than they are. Scores and gradients of bf16 are computed in f32
// and rounded once. The same inputs give the same bits. On the CPU the bits of a row also do not depend on the other
// rows of q (but see engine/kernels/cpu/scores/score_kernels.h).
#include "weft/engine/tape/tape.h"

namespace weft {

// log sum_j exp(z_ij) of every row: (m). An empty sum gives -infinity, with zero gradients.
Var score_log_sum_exp(const Var& q, const Var& k, const Var& scale, const Var& excluded = {}, const Var& targets = {});
// The same of every row and then of every column: (m + n). Each score is computed once for both.
Var score_log_sum_exp_both(const Var& q, const Var& k, const Var& scale, const Var& targets = {});
// sum_j log(1 + exp(z_ij)) of every row, with -z_ij in place of z_ij where j is the row's target: (m).
Var score_softplus_sum(const Var& q, const Var& k, const Var& scale, const Var& shift, const Var& targets = {});

}  // namespace weft
