// SPDX-License-Identifier: Apache-2.0
#pragma once
// The weight that scales a second loss so that its gradient is as large as that of the first (VQGAN: Esser et al.,
// arXiv 2012.09841). It calls no collective: the caller passes gradients of the whole batch.
#include "weft/engine/tensor/tensor.h"

namespace weft {

// |first| / (|second| + 1e-4), at most 1e4. `first` and `second` are the gradients of the two losses with respect to
// the last layer that both depend on, for the whole batch. Neither the norms of ranks' gradients nor a mean of the
// ranks' weights gives the same value. An f64 scalar on their device.
Tensor adaptive_weight(const Tensor& first, const Tensor& second);

}  // namespace weft
