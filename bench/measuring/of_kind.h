// SPDX-License-Identifier: Apache-2.0
#pragma once
// Code that is compared with Weft's kernels and is compiled for the same kind of CPU.
#include "bench/rivals/rivals.h"

namespace weft::bench {

struct OfKind {
  int lanes;  // floats in a vector
  Gemm eigen_gemm;
  Elementwise eigen_exp, eigen_tanh;
};

const OfKind& of_chosen_kind();

}  // namespace weft::bench
