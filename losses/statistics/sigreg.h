// SPDX-License-Identifier: Apache-2.0
#pragma once
// SIGReg, the regularizer of LeJEPA: makes the features of a batch follow a standard normal distribution along every
// direction. The statistic of Epps and Pulley compares the characteristic function of the features, projected on random
// directions, with that of the normal distribution:
//
//   L = mean over directions u of  B integral |1/B sum_n exp(i t u.x_n) - phi(t)|^2 phi(t) dt,   phi(t) = exp(-t^2 / 2)
//
// by the trapezoidal rule from -t_max to t_max, where B counts the samples of all ranks. The sums of cos and sin cross
// ranks in one all_reduce of 2 (knots - 1) numbers per direction plus one; one number crosses backward. The directions
// are drawn from a key, so all ranks have the same ones without communication.
#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

struct SigregOptions {
  int64_t directions = 1024;
  int64_t knots = 17;  // of the trapezoidal rule, from 0 to t_max, since the integrand is even
  double t_max = 3;
};

// Returns this rank's share. x is (b, ..., d); axes in between, such as views, each have a statistic, and the loss is
// their mean. `key` must be the same on every rank and should differ between steps. Saves only the projections for
// backward, which recomputes their cos and sin.
Var sigreg(const Var& x, Random key, const SigregOptions& options, Communicator& comm, Site caller = Site::here());

// LeJEPA: lambda SIGReg(views) + (1 - lambda) mean (view - mean of the global views)^2, over the elements of all views,
// global (b, g, d) and local (b, v, d), of the same samples. The second term needs no communication.
struct LejepaOptions {
  double lambda = 0.05;
  SigregOptions sigreg = {};
};
Var lejepa(const Var& global, const Var& local, Random key, const LejepaOptions& options, Communicator& comm,
           Site caller = Site::here());

}  // namespace weft
