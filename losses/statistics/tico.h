// SPDX-License-Identifier: Apache-2.0
#pragma once
// TiCo: makes the features of two views of a sample agree, and pushes them away from the directions that features have
// had in earlier steps.
//
//   L = 1 - mean a.b + rho mean a' M a,   M = beta M_before + (1 - beta) mean a a'      (a, b: features of unit length)
//
// The means are over the samples of all ranks. M has no gradient, so only the sum of a a' and the number of samples
// cross ranks: d^2 + 1 numbers forward and none backward.
#include "weft/collectives/communicator.h"
#include "weft/engine/nn/init.h"
#include "weft/engine/nn/module.h"

namespace weft {

struct TicoOptions {
  double beta = 0.9;
  double rho = 8;
};

class Tico final : public Module {
 public:
  Tico(const std::string& name, int64_t width, const Init& init, const TicoOptions& options = {});

  // Returns this rank's share. `first` and `second` are (b, d) and need not be normalized.
  Var operator()(const Var& first, const Var& second, const Pass& pass, Communicator& comm, Site caller = Site::here());

  // Updates M_before with the mean over all samples since the last update; call it after the passes of a training step.
  // The result is bit-identical on all ranks, and equal up to the rounding of sums for other numbers of ranks.
  void update();

  Parameter covariance;  // M_before, a buffer, initially zero

 private:
  Tensor averaged(const Var& products, int64_t samples) const;

  TicoOptions options_;
  Tensor products_;  // the sum of a a' since the last update
  int64_t samples_ = 0;
};

}  // namespace weft
