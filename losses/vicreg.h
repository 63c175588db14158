#pragma once
// VICReg: features of two views of a sample are to be near each other (invariance), every feature is to vary
// (variance), and different features are to have nothing in common (covariance).
//
//   L = lambda mean (a - b)^2 + mu/2 (V_a + V_b) + nu (C_a + C_b)
//   V = mean_i max(0, gamma - sqrt(var_i + epsilon)),   C = 1/d sum_(i != j) cov_ij^2
//
// var and cov are unbiased and of the samples of all ranks, by sums over ranks (moments.h): the 2 d^2 products cross
// rather than the B x d features of either view, so that each rank multiplies its own rows only, and the cost of the
// exchange does not grow with the batch: 2 d^2 + 6 d numbers forward, one backward. The invariance term crosses
// nowhere: each rank has the terms of its own samples.
#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

struct VicregOptions {
  double lambda = 25, mu = 25, nu = 1;
  double gamma = 1;
  double epsilon = 1e-4;
};

// `first` and `second` (b, d): this rank's share. The batch must have two samples at least.
Var vicreg(const Var& first, const Var& second, const VicregOptions& options, Communicator& comm,
           Site caller = Site::here());

}  // namespace weft
