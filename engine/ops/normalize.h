// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ops that normalize rows, and the cross entropy. A row is along `axis`; ops without that argument use the last axis.
#include "weft/engine/kernels/backend.h"
#include "weft/engine/tape/tape.h"

namespace weft {

Var softmax(const Var& x, int axis = -1);
Var log_softmax(const Var& x, int axis = -1);

Var l2_normalize(const Var& x, double epsilon = 1e-12);  // x / max(|x|, epsilon)
Var standardize(const Var& x, double epsilon = 1e-5);    // (x - mean) / sqrt(variance + epsilon)
// activation(gamma standardize(x) + beta), in one pass with none or relu.
Var layer_norm(const Var& x, const Var& gamma, const Var& beta, double epsilon = 1e-5, Activation activation = {});

// -log softmax(logits)[target] for every row: logits (n, classes), targets i64 (n), losses (n). Targets are
// checked as indices are (engine/ops/index.h).
Var cross_entropy(const Var& logits, const Var& targets);

}  // namespace weft
