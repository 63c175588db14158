// SPDX-License-Identifier: Apache-2.0
// Exercise 7: the gradient of data parallelism.
//
// Each rank has the gradient of the mean over its own samples, and their number; zeros if it has none. Return the
// gradient of the mean over the samples of all ranks, on every rank. comm.all_reduce sums Tensors over ranks. Make a
// Var of a Tensor to calculate with it, and take its value(): (Var(x) * 2).value().
//
// Predict: PyTorch's DDP returns the mean of the ranks' gradients. For which divisions of the samples is that the same?
#include "exercises/functions.h"
#include "weft/engine/ops/elementwise.h"

namespace weft::exercises {

Tensor whole_gradient(const Tensor& of_own_mean, int64_t samples, Communicator& comm) { throw NotWritten(); }

}  // namespace weft::exercises
