#pragma once
// What the machine can do at best, measured in the same run as what is held against it.
#include "bench/measure.h"

namespace weft::bench {

Burst fma_peak();                // seconds per floating-point operation, one core, f32
Burst triad();                   // seconds per byte that a[i] = b[i] + s c[i] reads or writes, beyond every cache
Burst plain_copy(double bytes);  // seconds per byte copied

}  // namespace weft::bench
