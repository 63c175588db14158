#pragma once
// The weight that brings a second loss to the size of the first where both arrive (VQGAN: Esser et al., arXiv
// 2012.09841).
#include "engine/tensor.h"

namespace weft {

// |first| / (|second| + 1e-4), at most 1e4: of the gradients of the losses by the last layer that they have in common.
// The gradients are those of the whole batch. Norms of parts of it, or a mean of such weights, are something else.
double adaptive_weight(const Tensor& first, const Tensor& second);

}  // namespace weft
