// SPDX-License-Identifier: Apache-2.0
#pragma once
// Functions that the cases of quantizers share: a loss of a decoder, the rotation trick in plain operations, and masks.
#include "tests/cases/losses/loss_case.h"
#include "weft/losses/quantizers/quantizer.h"

namespace weft {

// The quantizer's loss plus a decoder's, which is the mean over samples of a weighted sum of the values.
Var with_decoder(const Quantized& quantized, const Var& weights, const LossCase::Inputs& x, Communicator& comm);
Var with_decoder(const Var& loss, const Var& values, const Var& weights);  // on one process

// One token (dim), rotated and scaled to its code by a constant matrix.
Var rotated(const Var& token, const Var& code);

// A mask that keeps the tokens of two samples in three, and the numbers of the tokens that it keeps.
Var mask_of(const LossCase::Inputs& x);
Tensor unmasked(const Var& tokens);

}  // namespace weft
