#pragma once
// Stochastic gradient descent with momentum: v = momentum v + g, then p -= rate v.
#include <vector>

#include "engine/tape.h"

namespace weft {

class Sgd {
 public:
  explicit Sgd(std::vector<Parameter*> parameters, double momentum = 0.9);

  // A parameter without a gradient stays as it is.
  void step(const Gradients& gradients, double rate);

 private:
  struct State {
    Parameter* parameter;
    Tensor velocity;
  };
  std::vector<State> states_;
  double momentum_;
};

}  // namespace weft
