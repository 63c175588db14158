// SPDX-License-Identifier: Apache-2.0
// Compiled once for each kind of CPU, each time with another WEFT_BENCH_KIND.
#include "bench/measuring/of_kind.h"

#include "bench/rivals/eigen.h"
#include "weft/engine/kernels/cpu/simd.h"

namespace weft::bench {

extern const OfKind WEFT_BENCH_KIND = {cpu::lanes<float>, eigen_gemm, eigen_exp, eigen_tanh};

}  // namespace weft::bench
