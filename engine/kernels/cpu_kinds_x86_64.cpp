// SPDX-License-Identifier: Apache-2.0
// The levels of x86-64, under the names that compilers and distributions use.
#include "weft/engine/kernels/cpu_kinds.h"

namespace weft {

std::unique_ptr<Backend> make_cpu_backend_base();
std::unique_ptr<Backend> make_cpu_backend_v3();
std::unique_ptr<Backend> make_cpu_backend_v4();

std::span<const CpuKind> cpu_kinds() {
  static constexpr CpuKind kinds[] = {{"base", "nothing", [] { return true; }, make_cpu_backend_base},
                                      {"v3", "AVX2 or FMA",
                                       [] {
                                         return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                                                __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
                                       },
                                       make_cpu_backend_v3},
                                      {"v4", "AVX-512",
                                       [] {
                                         return __builtin_cpu_supports("avx512f") &&
                                                __builtin_cpu_supports("avx512bw") &&
                                                __builtin_cpu_supports("avx512cd") &&
                                                __builtin_cpu_supports("avx512dq") &&
                                                __builtin_cpu_supports("avx512vl");
                                       },
                                       make_cpu_backend_v4}};
  return kinds;
}

}  // namespace weft
