// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/evaluation/exact_sum.h"

#include <utility>

#include "weft/engine/kernels/backend.h"
#include "weft/engine/ops/exact.h"

namespace weft {

ExactSum::ExactSum(const Shape& shape, Device device) : parts_(Tensor::zeros(exact_shape(shape), DType::f64, device)) {}

void ExactSum::add(const Tensor& term) { add_exactly(term, parts_); }

Tensor ExactSum::over(Communicator& comm, Site site) {
  Tensor parts = std::exchange(parts_, {});
  comm.all_reduce(parts, parts, ReduceOp::sum, site);
  return exact_total(parts, DType::f64);
}

}  // namespace weft
