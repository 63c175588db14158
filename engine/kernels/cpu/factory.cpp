// SPDX-License-Identifier: Apache-2.0
// The only symbol of this folder that the rest of Weft uses. The folder is compiled once for each kind of CPU
// (meson.build), each time with another name for this function.
#include "weft/engine/kernels/cpu/cpu_backend.h"

std::unique_ptr<weft::Backend> weft::WEFT_CPU_FACTORY() { return std::make_unique<CpuBackend>(); }
