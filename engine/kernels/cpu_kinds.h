// SPDX-License-Identifier: Apache-2.0
#pragma once
// The instruction sets for which the kernels of engine/kernels/cpu are compiled. All give the same bits.
#include <memory>
#include <span>

#include "weft/engine/kernels/backend.h"

namespace weft {

struct CpuKind {
  const char* name;   // "v4"
  const char* needs;  // "AVX-512"
  bool (*runs_here)();
  std::unique_ptr<Backend> (*make)();
};

std::span<const CpuKind> cpu_kinds();  // of this processor family, from the slowest to the fastest

// The fastest kind that this machine supports, or the one that WEFT_CPU names. Error if that is unknown or unsupported.
const CpuKind& chosen_cpu_kind();

}  // namespace weft
