// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/kernels/cpu_kinds.h"

#include <cstdlib>

namespace weft {

const CpuKind& chosen_cpu_kind() {
  const CpuKind* best = nullptr;
  const char* const requested = std::getenv("WEFT_CPU");
  std::string names;
  for (const CpuKind& kind : cpu_kinds()) {
    const bool here = kind.runs_here();
    if (here) best = &kind;
    if (requested && std::string(requested) == kind.name) {
      require(here, "WEFT_CPU=", requested, ": this machine lacks ", kind.needs);
      return kind;
    }
    names += (names.empty() ? "" : ", ") + std::string(kind.name);
  }
  if (requested) fail({"WEFT_CPU=", requested, ": there are only ", names});
  return *best;
}

std::unique_ptr<Backend> make_cpu_backend() { return chosen_cpu_kind().make(); }

}  // namespace weft
