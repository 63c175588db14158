#include "engine/cpu_kinds.h"

#include <cstdlib>

namespace weft {

const CpuKind& chosen_cpu_kind() {
  const CpuKind* best = nullptr;
  const char* const wanted = std::getenv("WEFT_CPU");
  std::string names;
  for (const CpuKind& kind : cpu_kinds()) {
    const bool here = kind.runs_here();
    if (here) best = &kind;
    if (wanted && std::string(wanted) == kind.name) {
      require(here, "WEFT_CPU=", wanted, ": this machine lacks ", kind.needs);
      return kind;
    }
    names += (names.empty() ? "" : ", ") + std::string(kind.name);
  }
  if (wanted) fail({"WEFT_CPU=", wanted, ": there are only ", names});
  return *best;
}

std::unique_ptr<Backend> make_cpu_backend() { return chosen_cpu_kind().make(); }

}  // namespace weft
