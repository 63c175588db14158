// SPDX-License-Identifier: Apache-2.0
#pragma once
// Soft assignments of tokens to the corners {-1, 1}^bits of a cube, with independent bits: token i has bit j with
// probability sigmoid(logits[i, j]), and the probability of a corner is the product over its bits. So the entropy of a
// token is a sum over bits, and the tokens' summed assignments are one product of two thin matrices, the assignments of
// the upper and of the lower half of the bits. The tokens x corners matrix is never stored.
#include "weft/engine/tape/tape.h"

namespace weft {

// The sum over tokens of the entropy of their assignments, a scalar.
Var entropy_of_assignments(const Var& logits);

// The sum over tokens of the probability of every corner: (groups * 2^(bits / groups)), where each group of bits has
// corners of its own. Temporary memory is 2^(bits / groups / 2) numbers per token, for `chunk` tokens at a time.
Var assigned_to_corners(const Var& logits, int64_t groups, int64_t chunk);

// -sum p log p. A probability of zero adds nothing.
Var entropy(const Var& p);

}  // namespace weft
