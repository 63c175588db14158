// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/average.h"

#include "weft/engine/kernels/backend.h"

namespace weft {

WeightAverage::WeightAverage(FlatParameters parameters) : WeightAverage(parameters, parameters.layout().all()) {}

WeightAverage::WeightAverage(FlatParameters parameters, Range owned)
    : parameters_(std::move(parameters)), owned_(owned) {
  const DType dtype = parameters_.layout().dtype();
  average_ = values().to(dtype == DType::f64 ? DType::f64 : DType::f32);
  if (average_.shares_memory_with(parameters_.flat())) average_ = average_.clone();
}

// Computed as a step of descent, a -= (1 - decay) (a - p).
void WeightAverage::update(double decay) {
  require(decay >= 0 && decay <= 1, "average: decay ", decay, " is outside [0, 1]");
  const UpdateRun run = {values(), 0, {.scale = -1, .decay = 1, .rate = 1 - decay}};
  Tensor none;
  backend(average_.device()).update(UpdateRule::descent, {&run, 1}, average_, {}, none);
}

void WeightAverage::set_values(const Tensor& values) {
  Tensor own = this->values();
  backend(own.device()).cast(values, own);
  parameters_.changed(owned_);
}

WeightAverage::Applied::Applied(WeightAverage& average) : average_(average), own_(average.values().clone()) {
  average_.set_values(average_.average_);
}
WeightAverage::Applied::~Applied() { average_.set_values(own_); }

}  // namespace weft
