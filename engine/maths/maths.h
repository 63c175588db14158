// SPDX-License-Identifier: Apache-2.0
#pragma once
// Elementary functions that compilers vectorise. They have no branches, tables or calls, only selects, so that g++ and
// clang both compile `for (i) y[i] = maths::exp(x[i])` to AVX-512 (or AVX2) code. They handle infinities, NaN, signed
// zero and gradual underflow. Every multiply-add is an explicit std::fma, so that the vector body and the scalar tail
// of a loop round alike; the argument reductions rely on it, too. (Without FMA hardware the results are the same, but
// slow; build with at least -march=x86-64-v3.) On a CUDA device these names mean CUDA's own accurate functions.
//
// The functions use only operations that IEEE 754 rounds exactly, so their bits are the same on every CPU. A C library
// has several versions of each function and selects one by CPU, so its bits differ. Every value that a result depends
// on is computed with these.
//
// The largest errors found, in ulp, for float (every 11th of all arguments) and double (10^7 random arguments):
//   exp 1.1 1.0   expm1 1.7 1.9   log 1.0 1.2   log1p 1.6 1.9   tanh 2.0 2.1   erf 1.0 1.0   sin, cos 1.6 0.8
//   pow 0.51 0.84
#include "weft/engine/maths/erf.h"
#include "weft/engine/maths/exponential.h"
#include "weft/engine/maths/logarithm.h"
#include "weft/engine/maths/power.h"
#include "weft/engine/maths/roots.h"
#include "weft/engine/maths/sigmoid.h"
#include "weft/engine/maths/trigonometry.h"
