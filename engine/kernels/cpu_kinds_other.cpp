// SPDX-License-Identifier: Apache-2.0
// Processor families other than x86-64 have a single kind. On AArch64 it uses NEON and fused multiply-adds.
#include "weft/engine/kernels/cpu_kinds.h"

namespace weft {

std::unique_ptr<Backend> make_cpu_backend_base();

std::span<const CpuKind> cpu_kinds() {
  static constexpr CpuKind kinds[] = {{"base", "nothing", [] { return true; }, make_cpu_backend_base}};
  return kinds;
}

}  // namespace weft
