// All that the rest of Weft sees of this folder. The folder is compiled once for each kind of CPU (meson.build), and
// this function has another name in each.
#include "engine/backends/cpu/cpu_backend.h"

std::unique_ptr<weft::Backend> weft::WEFT_CPU_FACTORY() { return std::make_unique<CpuBackend>(); }
