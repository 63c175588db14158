#pragma once
// What the cases of quantizers have in common.
#include "losses/case.h"
#include "losses/quantizers/quantizer.h"

namespace weft {

// A quantizer's loss and that of a decoder: a weighted sum of the values, per sample.
Var with_decoder(const Quantized& quantized, const Var& weights, const LossCase::Inputs& x, Communicator& comm);
Var with_decoder(const Var& loss, const Var& values, const Var& weights);  // on one process

// One token (dim) as the matrix that turns and stretches it to its code leaves it.
Var turned(const Var& token, const Var& code);

// The tokens of two samples in three count; and the numbers of those that do.
Var mask_of(const LossCase::Inputs& x);
Tensor unmasked(const Var& tokens);

}  // namespace weft
