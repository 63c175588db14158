#pragma once
// What contrastive losses need of the scores  z = scale q k' (+ shift)  of every row of q (m, d) with every row of k
// (n, d). The scores are never in memory all at once: they are computed tile by tile, and again for the gradients.
// Where gradients are themselves to be differentiated (Graph::create), they are made of plain operations instead, which
// keep all scores.
//
// `scale` and `shift` are scalars (). `excluded` is i64 (m, c): the columns that a row does not see, -1 for none.
// `targets` is i64 (m): a column for each row, -1 for none. If there are targets, m values come behind log-sum-exps:
// the score of every row with its target, 0 without one. Columns are checked on the CPU only.
//
// Results are f64 whatever the rows are, and a log-sum-exp is never less than its target's score: a loss is what lies
// between the two, which is often small beside them. Scores and gradients of bf16 are found in f32 and rounded once.
// The same inputs give the same bits; on the CPU a row's also do not depend on the other rows of q (but see
// engine/backends/cpu/scores.h).
#include "engine/tape.h"

namespace weft {

// log sum_j exp(z_ij) of every row: (m). That of nothing is -infinity, with zero gradients.
Var score_log_sum_exp(const Var& q, const Var& k, const Var& scale, const Var& excluded = {}, const Var& targets = {});
// The same of every row and then of every column: (m + n), each score computed once for both.
Var score_log_sum_exp_both(const Var& q, const Var& k, const Var& scale, const Var& targets = {});
// sum_j log(1 + exp(z_ij)) of every row, with -z_ij in place of z_ij where j is the row's target: (m).
Var score_softplus_sum(const Var& q, const Var& k, const Var& scale, const Var& shift, const Var& targets = {});

}  // namespace weft
