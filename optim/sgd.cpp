#include "optim/sgd.h"

#include "engine/backend.h"

namespace weft {

Sgd::Sgd(std::vector<Parameter*> parameters, double momentum) : momentum_(momentum) {
  require(momentum >= 0 && momentum < 1, "sgd: momentum ", momentum, " is outside [0, 1)");
  for (Parameter* parameter : parameters) {
    const Tensor& value = parameter->value;
    states_.push_back({parameter, Tensor::zeros(value.shape(), value.dtype(), value.device())});
  }
}

void Sgd::step(const Gradients& gradients, double rate) {
  for (auto& [parameter, velocity] : states_) {
    const Tensor& gradient = gradients[*parameter];
    if (!gradient.defined()) continue;
    Backend& device = backend(velocity.device());
    device.unary(Unary::Affine, {momentum_, 0}, velocity, velocity);
    device.accumulate(1, gradient, velocity);
    device.accumulate(-rate, velocity, parameter->value);
  }
}

}  // namespace weft
