#pragma once
// Elementary functions that a plain loop vectorises: no branches, no tables, no calls, only selects, so that
// `for (i) y[i] = maths::exp(x[i])` becomes AVX-512 (or AVX2) code under both g++ and clang. They honour infinities,
// NaN, signed zero and gradual underflow. Every multiply-add is spelled std::fma: a loop's vector body and its scalar
// tail then round alike, and the argument reductions rely on it. (Without FMA hardware all of it stays right but
// becomes slow; build with at least -march=x86-64-v3.) On a CUDA device the names mean CUDA's own accurate functions.
//
// Built of operations that IEEE 754 rounds, they have the same bits on every CPU. A C library's do not: it has several
// versions of each and chooses by CPU. So whatever a result can depend on comes from here.
//
// Largest errors seen, in ulp, of float (every 11th of all arguments) and double (10^7 random ones):
//   exp 1.1 1.0   expm1 1.7 1.9   log 1.0 1.2   log1p 1.6 1.9   tanh 2.0 2.1   erf 1.0 1.0   sin, cos 1.6 0.8
//   pow 0.51 0.84
#include "engine/maths/erf.h"
#include "engine/maths/exponential.h"
#include "engine/maths/logarithm.h"
#include "engine/maths/power.h"
#include "engine/maths/roots.h"
#include "engine/maths/sigmoid.h"
#include "engine/maths/trigonometry.h"
