#pragma once
// TiCo: features of two views of a sample are to agree, and to avoid the directions that features have kept to so far.
//
//   L = 1 - mean a.b + rho mean a' M a,   M = beta M_before + (1 - beta) mean a a'      (a, b: features of unit length)
//
// The means are over the samples of all ranks. M has no gradient, so all that crosses ranks is the sum of a a' and the
// number of samples, d^2 + 1 numbers forward and none backward.
#include "collectives/communicator.h"
#include "engine/nn/init.h"
#include "engine/nn/module.h"

namespace weft {

struct TicoOptions {
  double beta = 0.9;
  double rho = 8;
};

class Tico final : public Module {
 public:
  Tico(const std::string& name, int64_t width, const Init& init, const TicoOptions& options = {});

  // `first` and `second` (b, d) need not be normalized: this rank's share.
  Var operator()(const Var& first, const Var& second, const Pass& pass, Communicator& comm, Site caller = Site::here());

  // After the passes of a training step: M_before moves on by the mean over all their samples. The same bits on every
  // rank; for another number of ranks the same up to the rounding of sums.
  void update();

  Parameter covariance;  // M_before, a buffer; zeros at first

 private:
  Tensor moved(const Var& products, int64_t samples) const;

  TicoOptions options_;
  Tensor products_;  // sums since the last update
  int64_t samples_ = 0;
};

}  // namespace weft
