// SPDX-License-Identifier: Apache-2.0
#pragma once
// Regression metrics over the samples of all ranks, which can be trained on, too. The definitions are those of
// TorchMetrics; the sums over ranks come from States (losses/metrics/states.h). Each metric is the same on every
// rank (Replicated), and its gradient is exact. To train on a metric, take a share of it, which can be added to other
// losses:
//
//   const Var loss = keep_on(mean(pearson_correlation(y, targets, comm)), {0}, comm) * -1.0 + other_share;
//
// Predictions and targets are (samples) for a scalar metric, or (samples, outputs) for one value per output. Ranks may
// have different numbers of samples, or none. Each metric costs one or two collectives of a few numbers per output.
#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

// Zero if no rank has samples. The gradient of the root is zero where the root is zero.
Var mean_squared_error(const Var& predictions, const Var& targets, Communicator& comm, Site caller = Site::here());
Var root_mean_squared_error(const Var& predictions, const Var& targets, Communicator& comm, Site caller = Site::here());

// Computed from deviations from the mean over all ranks (moments.h), so a large mean costs no precision. If all
// predictions or all targets are equal the correlation is undefined: the result is NaN or rounding noise.
Var pearson_correlation(const Var& predictions, const Var& targets, Communicator& comm, Site caller = Site::here());
// r2_score is 1 - mean squared error / variance of the targets, explained_variance 1 - variance of the errors /
// variance of the targets. Both are computed from deviations, too. If all targets are equal, r2_score is 1 without
// errors, explained_variance 1 with constant errors, and otherwise they are 0, with zero gradients.
Var r2_score(const Var& predictions, const Var& targets, Communicator& comm, Site caller = Site::here());
Var explained_variance(const Var& predictions, const Var& targets, Communicator& comm, Site caller = Site::here());

// The cosine of each row (samples, d) of predictions and targets, zero if one of them is zero; its mean or sum over
// samples, a scalar.
enum class Over : uint8_t { mean, sum };
Var cosine_similarity(const Var& predictions, const Var& targets, Over reduction, Communicator& comm,
                      Site caller = Site::here());

}  // namespace weft
