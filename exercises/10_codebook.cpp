// SPDX-License-Identifier: Apache-2.0
// Exercise 10: a codebook of all ranks.
//
// Token i of this rank has chosen the code chosen[i]. Return the new codes, on every rank: each is the mean of the
// tokens of all ranks that have chosen it, and stays as it is if none has. codes is (codes, width), tokens (n, width),
// chosen (n) of integers. values() gives a vector of a Tensor's elements, row after row; Tensor::from(shape, values,
// DType::f64) makes one.
//
// Predict: a code is chosen by one token on rank 0 and by three on rank 1. How much of the new code is rank 0's?
#include "exercises/functions.h"

namespace weft::exercises {

Tensor updated_codes(const Tensor& codes, const Tensor& tokens, const Tensor& chosen, Communicator& comm) {
  throw NotWritten();
}

}  // namespace weft::exercises
