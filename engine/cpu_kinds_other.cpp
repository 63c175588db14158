// Other processor families have one kind: on AArch64 it has NEON and fused operations.
#include "engine/cpu_kinds.h"

namespace weft {

std::unique_ptr<Backend> make_cpu_backend_base();

std::span<const CpuKind> cpu_kinds() {
  static constexpr CpuKind kinds[] = {{"base", "nothing", [] { return true; }, make_cpu_backend_base}};
  return kinds;
}

}  // namespace weft
