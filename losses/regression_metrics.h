#pragma once
// Metrics of predictions that are losses, too: of all samples of all ranks, from states that are completed over ranks
// (losses/states.h). The definitions are those of TorchMetrics. Each is the same on every rank (Replicated) and as
// exact in its gradient as in its value; what is trained on is a share of it, which goes with any other loss:
//
//   const Var loss = keep_on(mean(pearson_correlation(y, targets, comm)), {0}, comm) * -1.0 + other_share;
//
// Predictions and targets are (samples) for a scalar, or (samples, outputs) for one value per output. Ranks may have
// different numbers of samples, or none; each metric is one or two exchanges of a few numbers per output.
#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

// Zero of no samples at all. The root's gradient is zero where it is zero.
Var mean_squared_error(const Var& predictions, const Var& targets, Communicator& comm, Site caller = Site::here());
Var root_mean_squared_error(const Var& predictions, const Var& targets, Communicator& comm, Site caller = Site::here());

// From deviations about the mean over all ranks (moments.h), so a large mean costs no digits. Where all predictions or
// all targets are equal it is not defined: NaN, or what rounding has left.
Var pearson_correlation(const Var& predictions, const Var& targets, Communicator& comm, Site caller = Site::here());
// 1 - mean squared error / variance of the targets, and 1 - variance of the errors / variance of the targets: also from
// deviations. Where all targets are equal both are 1 if there are no errors (or none that vary), else 0, with zero
// gradients.
Var r2_score(const Var& predictions, const Var& targets, Communicator& comm, Site caller = Site::here());
Var explained_variance(const Var& predictions, const Var& targets, Communicator& comm, Site caller = Site::here());

// Of each row (samples, d), zero if one of the two is; the mean over samples, or the sum. A scalar.
enum class Over : uint8_t { mean, sum };
Var cosine_similarity(const Var& predictions, const Var& targets, Over reduction, Communicator& comm,
                      Site caller = Site::here());

}  // namespace weft
