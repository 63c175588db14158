// SPDX-License-Identifier: Apache-2.0
#include <dnnl.h>
#include <omp.h>

#include "bench/rivals/rivals.h"

namespace weft::bench {
namespace {
void gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const float* a, const float* b,
          float* c) {
  dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, 1, a, transpose_a ? m : k, b,
             transpose_b ? k : n, 0, c, n);
}
}  // namespace

Gemm onednn_gemm() {
  omp_set_num_threads(1);
  return gemm;
}

}  // namespace weft::bench
