#pragma once
// What Weft's kernels are held against and has to be compiled for the same kind of CPU as they are.
#include "bench/rivals.h"

namespace weft::bench {

struct OfKind {
  int lanes;  // floats in a vector
  Gemm eigen_gemm;
  Elementwise eigen_exp, eigen_tanh;
};

const OfKind& of_chosen_kind();

}  // namespace weft::bench
