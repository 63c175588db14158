#pragma once
// SIGReg, the regularizer of LeJEPA: seen from any direction, the features of a batch are to look like a standard
// normal distribution. The statistic of Epps and Pulley compares its characteristic function with that of the features,
// projected on random directions:
//
//   L = mean over directions u of  N integral |1/N sum_n exp(i t u.x_n) - phi(t)|^2 phi(t) dt,   phi(t) = exp(-t^2 / 2)
//
// by the trapezoidal rule from -t_max to t_max. N counts the samples of all ranks; the sums of cos and sin are over all
// ranks, in one exchange of 2 (knots - 1) numbers per direction and one more, and one number crosses backward. The
// directions are drawn from a key, so all ranks have the same ones without asking each other.
#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

struct SigregOptions {
  int64_t directions = 1024;
  int64_t knots = 17;  // of the trapezoidal rule, from 0 to t_max: the integrand is even
  double t_max = 3;
};

// x is (b, ..., d): where there are axes between, such as views, the mean of the statistics of each. `key` is to be the
// same on every rank, and another in every step. Saves the projections for backward, and no cos or sin of them.
Var sigreg(const Var& x, Random key, const SigregOptions& options, Communicator& comm, Site caller = Site::here());

// LeJEPA: lambda SIGReg(views) + (1 - lambda) mean |view - mean of the global views|^2, over the elements of all views,
// global (b, g, d) and local (b, v, d), of the same samples. The second term crosses nowhere.
struct LejepaOptions {
  double lambda = 0.05;
  SigregOptions sigreg = {};
};
Var lejepa(const Var& global, const Var& local, Random key, const LejepaOptions& options, Communicator& comm,
           Site caller = Site::here());

}  // namespace weft
