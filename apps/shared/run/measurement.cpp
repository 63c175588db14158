// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/measurement.h"

#include <memory>

#include "weft/engine/kernels/backend.h"

namespace weft {

Measurement::Measurement(const Tensor& scalar)
    : Measurement([copy = std::make_shared<HostCopy>(scalar)] { return copy->values().item(); }) {}

}  // namespace weft
