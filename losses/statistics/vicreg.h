// SPDX-License-Identifier: Apache-2.0
#pragma once
// VICReg: brings the features of two views of a sample together (invariance), keeps the variance of every feature above
// a threshold (variance), and makes different features uncorrelated (covariance).
//
//   L = lambda mean (a - b)^2 + mu/2 (V_a + V_b) + nu (C_a + C_b)
//   V = mean_i max(0, gamma - sqrt(var_i + epsilon)),   C = 1/d sum_(i != j) cov_ij^2
//
// var and cov are unbiased and computed over the samples of all ranks, by sums over ranks (moments.h). Each rank
// multiplies only its own rows, and the 2 d^2 products cross ranks instead of the B x d features of both views. So the
// traffic does not grow with the batch: 2 d^2 + 6 d numbers forward, one backward. The invariance term needs no
// communication, since each rank has the terms of its own samples.
#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

struct VicregOptions {
  double lambda = 25, mu = 25, nu = 1;
  double gamma = 1;
  double epsilon = 1e-4;
};

// Returns this rank's share. `first` and `second` are (b, d). The whole batch must have at least two samples.
Var vicreg(const Var& first, const Var& second, const VicregOptions& options, Communicator& comm,
           Site caller = Site::here());

}  // namespace weft
