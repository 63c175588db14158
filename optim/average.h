#pragma once
// An exponential average of parameters over the steps, in f32 (f64 for f64) and flat memory of its own, to be evaluated
// in their place:
//
//   WeightAverage average(optimizer.parameters());
//   ...
//   optimizer.step(gradients, rate);
//   average.update(0.999);
//   ...
//   {
//     WeightAverage::InUse in_use(average);  // the parameters have the averages' values
//     accuracy(network, data.test);
//   }                                        // and their own again
#include "optim/flat.h"

namespace weft {

class WeightAverage {
 public:
  explicit WeightAverage(FlatParameters parameters);      // begins as the values are now
  WeightAverage(FlatParameters parameters, Range owned);  // keeps and swaps this range only
  void update(double decay);                              // a = decay a + (1 - decay) p
  const Tensor& flat() const { return average_; }         // the owned range, for checkpoints
  Tensor& flat() { return average_; }

  class InUse {
   public:
    explicit InUse(WeightAverage& average);
    ~InUse();
    InUse(const InUse&) = delete;
    InUse& operator=(const InUse&) = delete;

   private:
    WeightAverage& average_;
    Tensor own_;  // the parameters' values meanwhile
  };

 private:
  Tensor values() const { return parameters_.flat().slice(owned_.first, owned_.last); }
  void set_values(const Tensor& values);

  FlatParameters parameters_;
  Range owned_;
  Tensor average_;
};

}  // namespace weft
