// SPDX-License-Identifier: Apache-2.0
#pragma once
// Products of matrices.
#include "weft/engine/kernels/backend.h"
#include "weft/engine/tape/tape.h"

namespace weft {

enum class Transpose : uint8_t { no, yes };

// (m, k) x (k, n) -> (m, n), after the requested transpositions. Leading axes are a batch, (b, m, k) x (b, k, n). A
// matrix without them is multiplied with every matrix of the batch.
Var matmul(const Var& a, const Var& b, Transpose transpose_a = Transpose::no, Transpose transpose_b = Transpose::no);

// activation(x w + bias) in one pass: x is (..., in), w (in, out), bias (out) or an empty Var.
Var linear(const Var& x, const Var& w, const Var& bias = {}, Activation activation = {});

// activation(y) for an Activation value, as `linear` and `conv2d` apply it.
Var activate(const Var& y, Activation activation);
// Records the activation of an op that has applied it in its epilogue: `y` has the activated values already.
Var activate_fused(const Var& y, Activation activation);

// Squared distances between the rows of a (m, d) and b (n, d): (m, n), each at least 0.
Var pairwise_squared_distance(const Var& a, const Var& b);

}  // namespace weft
