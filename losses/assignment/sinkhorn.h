// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sinkhorn's algorithm on a batch that is divided among ranks: assigns samples to prototypes such that all prototypes
// are used equally often. SwaV and MSN take their targets from it.
#include "weft/collectives/communicator.h"
#include "weft/engine/tensor/tensor.h"

namespace weft {

// Alternately normalizes the columns of exp(logits), over the samples of all ranks, and its rows, `iterations` times.
// Logits are (samples, prototypes), such as similarities divided by SwaV's epsilon. Without iterations the result is
// the softmax of every row. Computed with logarithms, so that nothing overflows or underflows.
//
// Returns one result per matrix. All matrices have the same number of columns. They share their collectives: each
// iteration takes two all_reduces, of the columns' maxima and sums, (matrices, prototypes). A rank may have no samples.
// The result has no gradient.
std::vector<Tensor> sinkhorn(std::vector<Tensor> logits, int iterations, Communicator& comm, Site site = Site::here());

}  // namespace weft
