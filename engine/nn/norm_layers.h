// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "weft/engine/nn/init.h"
#include "weft/engine/nn/module.h"

namespace weft {

// activation(gamma (x - mean) / sqrt(variance + epsilon) + beta), with the mean and variance of every row. gamma is
// initialised with ones, beta with zeros.
class LayerNorm final : public Layer {
 public:
  LayerNorm(const std::string& name, int64_t width, const Init& init, Activation activation = {},
            double epsilon = 1e-5);

  Parameter gamma, beta;

 private:
  Var apply(const Var& x, const Pass& pass) override;
  Activation activation_;
  double epsilon_;
};

// Like LayerNorm without activation, but with the mean and variance of every channel (the last axis) over all other
// axes: those of the batch in training, their running averages otherwise. Each training step moves the averages by
// `momentum`. For bf16 inputs all of this is computed and stored in f32, and the result is rounded once.
class BatchNorm : public Layer {
 public:
  BatchNorm(const std::string& name, int64_t width, const Init& init, double momentum = 0.1, double epsilon = 1e-5);

  Parameter gamma, beta;
  Parameter running_mean, running_variance;  // buffers, at least f32; the variance is the unbiased estimate

  struct Statistics {
    int64_t count;       // of values per channel
    Var origin;          // per channel, a constant near the mean
    Var mean, variance;  // per channel: the mean minus the origin; the biased variance
    Var centered;        // the input minus its mean
  };
  // The statistics of x, which is f32 or f64; zeros if x has no rows. DistributedBatchNorm overrides this for batches
  // that are divided among ranks.
  virtual Statistics statistics(const Var& x) const;

 private:
  Var apply(const Var& x, const Pass& pass) override;
  void update_averages(const Statistics& batch);
  double momentum_, epsilon_;
};

}  // namespace weft
