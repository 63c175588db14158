// Compiled once for each kind of CPU, and each time under another name.
#include "bench/of_kind.h"

#include "bench/eigen.h"
#include "engine/backends/cpu/simd.h"

namespace weft::bench {

extern const OfKind WEFT_BENCH_KIND = {cpu::lanes<float>, eigen_gemm, eigen_exp, eigen_tanh};

}  // namespace weft::bench
