// SPDX-License-Identifier: Apache-2.0
#pragma once
// A sum over blocks of samples on all ranks, with the same bits however blocks are divided (engine/ops/exact.h).
#include "weft/collectives/communicator.h"

namespace weft {

class ExactSum {
 public:
  explicit ExactSum(const Shape& shape, Device device = Device::cpu);
  void add(const Tensor& term);                               // floating
  Tensor over(Communicator& comm, Site site = Site::here());  // f64; once, by one all_reduce

 private:
  Tensor parts_;
};

}  // namespace weft
