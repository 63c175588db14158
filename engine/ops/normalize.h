#pragma once
// Ops that bring rows to a common scale, and the cross entropy that reads them. A row lies along `axis`, or along the
// last one where no axis is asked for.
#include "engine/backend.h"
#include "engine/tape.h"

namespace weft {

Var softmax(const Var& x, int axis = -1);
Var log_softmax(const Var& x, int axis = -1);

Var l2_normalize(const Var& x, double epsilon = 1e-12);  // x / max(|x|, epsilon)
Var standardize(const Var& x, double epsilon = 1e-5);    // (x - mean) / sqrt(variance + epsilon)
// activation(gamma standardize(x) + beta), in one pass with none or relu.
Var layer_norm(const Var& x, const Var& gamma, const Var& beta, double epsilon = 1e-5, Activation activation = {});

// -log softmax(logits)[target] for every row: logits (n, classes), targets i64 (n), losses (n). Targets are checked on
// the CPU; on a card a check would stop the queue, so there a target out of range is undefined.
Var cross_entropy(const Var& logits, const Var& targets);

}  // namespace weft
