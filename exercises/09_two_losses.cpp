// SPDX-License-Identifier: Apache-2.0
// Exercise 9: two losses, two backward passes, one sum over ranks.
//
// first(tape, w) and second(tape, w) give this rank's shares of two losses. Return the gradient of the objective, the
// sum of both over all ranks, on every rank. Each loss needs a tape of its own: backward consumes it. Gradients is what
// backward adds to, and gradients[w] a Tensor.
//
// Predict: what comes out if ranks sum what they have after each of the two backward passes?
#include "exercises/functions.h"

namespace weft::exercises {

Tensor gradient_of_both(const Parameter& w, const Loss& first, const Loss& second, Communicator& comm) {
  throw NotWritten();
}

}  // namespace weft::exercises
