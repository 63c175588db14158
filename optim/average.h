// SPDX-License-Identifier: Apache-2.0
#pragma once
// An exponential moving average of parameters over the steps, in f32 (f64 for f64) and in flat memory of its own. For
// an evaluation, the averages can temporarily replace the parameters' values:
//
//   WeightAverage average(optimizer.parameters());
//   ...
//   optimizer.step(gradients, rate);
//   average.update(0.999);
//   ...
//   {
//     WeightAverage::Applied applied(average);  // the parameters have the averages' values
//     accuracy(network, data.test);
//   }                                        // the parameters have their own values again
#include "weft/optim/flat.h"

namespace weft {

class WeightAverage {
 public:
  explicit WeightAverage(FlatParameters parameters);      // starts with the current values
  WeightAverage(FlatParameters parameters, Range owned);  // keeps and swaps only this range
  void update(double decay);                              // a = decay a + (1 - decay) p
  const Tensor& flat() const { return average_; }         // the owned range, for checkpoints
  Tensor& flat() { return average_; }

  class Applied {
   public:
    explicit Applied(WeightAverage& average);
    ~Applied();
    Applied(const Applied&) = delete;
    Applied& operator=(const Applied&) = delete;

   private:
    WeightAverage& average_;
    Tensor own_;  // a copy of the parameters' own values
  };

 private:
  Tensor values() const { return parameters_.flat().slice(owned_.first, owned_.last); }
  void set_values(const Tensor& values);

  FlatParameters parameters_;
  Range owned_;
  Tensor average_;
};

}  // namespace weft
