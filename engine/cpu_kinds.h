#pragma once
// The kinds of CPU that the kernels of engine/backends/cpu are compiled for. All give the same bits.
#include <memory>
#include <span>

#include "engine/backend.h"

namespace weft {

struct CpuKind {
  const char* name;   // "v4"
  const char* needs;  // "AVX-512"
  bool (*runs_here)();
  std::unique_ptr<Backend> (*make)();
};

std::span<const CpuKind> cpu_kinds();  // of this processor family, from the slowest to the fastest

// The fastest that this machine has, or the one that WEFT_CPU names; Error if it names none, or one that is not here.
const CpuKind& chosen_cpu_kind();

}  // namespace weft
