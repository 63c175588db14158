// SPDX-License-Identifier: Apache-2.0
#pragma once
// The limits of this machine, which are measured in the same run as the results that are compared with them.
#include "bench/measuring/measure.h"

namespace weft::bench {

Burst fma_peak();  // seconds per floating-point operation, one core, f32
Burst triad();     // seconds per byte read or written by a[i] = b[i] + s c[i], with arrays beyond the caches
Burst plain_copy(double bytes);  // seconds per byte copied

}  // namespace weft::bench
