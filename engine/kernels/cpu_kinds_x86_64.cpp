// SPDX-License-Identifier: Apache-2.0
// The levels of x86-64, under the names that compilers and distributions use.
#include "weft/engine/kernels/cpu_kinds.h"
#include "weft/engine/kernels/levels_x86_64.h"

namespace weft {

std::unique_ptr<Backend> make_cpu_backend_base();
std::unique_ptr<Backend> make_cpu_backend_v3();
std::unique_ptr<Backend> make_cpu_backend_v4();

std::span<const CpuKind> cpu_kinds() {
  static constexpr CpuKind kinds[] = {{"base", "nothing", [] { return true; }, make_cpu_backend_base},
                                      {"v3", "AVX2 or FMA", runs_v3, make_cpu_backend_v3},
                                      {"v4", "AVX-512", runs_v4, make_cpu_backend_v4}};
  return kinds;
}

}  // namespace weft
