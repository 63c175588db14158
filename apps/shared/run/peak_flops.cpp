// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/peak_flops.h"

#include <algorithm>
#include <chrono>

#include "weft/engine/kernels/backend.h"

namespace weft {

double peak_flops(Device device, Communicator& comm) {
  using Clock = std::chrono::steady_clock;
  constexpr double longest = 0.2;  // on an emulator one burst takes longer
  double best = 0, spent = 0;
  comm.barrier();
  for (int burst = 0; burst < 10 && spent < longest; ++burst) {
    const Clock::time_point begin = Clock::now();
    const double operations = backend(device).multiply_adds();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::max(best, operations / seconds);
    spent += seconds;
  }
  return comm.all_reduce(Tensor::full({}, best, DType::f64)).item();
}

}  // namespace weft
