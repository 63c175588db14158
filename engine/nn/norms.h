#pragma once
#include "engine/nn/init.h"
#include "engine/nn/module.h"

namespace weft {

// activation(gamma (x - mean) / sqrt(variance + epsilon) + beta), with the mean and variance of every row. gamma starts
// at one, beta at zero.
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
// axes: those of the batch in training, their running averages otherwise. The averages move by `momentum` once per
// training step. For bf16 inputs all of this is f32, the averages too; the result is rounded once.
class BatchNorm : public Layer {
 public:
  BatchNorm(const std::string& name, int64_t width, const Init& init, double momentum = 0.1, double epsilon = 1e-5);

  Parameter gamma, beta;
  Parameter running_mean, running_variance;  // buffers, at least f32; the variance is the unbiased estimate

  struct Statistics {
    int64_t count;       // of values per channel
    Var origin;          // per channel, a constant near the mean
    Var mean, variance;  // per channel: the mean less the origin; the variance divided by the count
    Var centered;        // the input less its mean
  };
  // Of the values in x, f32 or f64, or zeros where there are none; a batch that is divided among ranks overrides it.
  virtual Statistics statistics(const Var& x) const;

 private:
  Var apply(const Var& x, const Pass& pass) override;
  void remember(const Statistics& batch);
  double momentum_, epsilon_;
};

}  // namespace weft
