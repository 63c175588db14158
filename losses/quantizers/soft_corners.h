#pragma once
// Soft assignments of tokens to the corners of a cube, {-1, 1}^bits, in which bits are independent: token i has bit j
// with probability sigmoid(logits[i, j]), and a corner's probability is the product over its bits. So entropies of
// tokens are sums over bits; and what all tokens assign to the corners is one product of two thin matrices, the
// assignments of the upper and of the lower half of the bits. The tokens x corners matrix never exists.
#include "engine/tape.h"

namespace weft {

// The entropies of all tokens' assignments, added up: ().
Var entropy_of_assignments(const Var& logits);

// The sum over tokens of the probability of every corner: (groups * 2^(bits / groups)). With several groups of bits, of
// the corners that each group spans for itself. Further memory is for `chunk` tokens at a time, 2^(bits / groups / 2)
// numbers each.
Var assigned_to_corners(const Var& logits, int64_t groups, int64_t chunk);

// -sum p log p; a probability of zero adds nothing.
Var entropy(const Var& p);

}  // namespace weft
