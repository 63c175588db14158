#pragma once
// Sinkhorn's algorithm on a batch that is divided among ranks: codes that use all prototypes equally often.
#include "collectives/communicator.h"
#include "engine/tensor.h"

namespace weft {

// From logits (samples, prototypes), such as similarities divided by SwaV's epsilon: exp(logits), of which in turn
// every column is divided by its sum over the samples of all ranks and every row by its own, so often. No iteration
// leaves the softmax of every row. Computed by logarithms, so that nothing over- or underflows.
//
// One result for each matrix given; they have equal columns and rows of their own, and travel together: the columns'
// maxima and sums, (matrices, prototypes), are two all_reduces an iteration. A rank may have no samples. No gradient.
std::vector<Tensor> sinkhorn(std::vector<Tensor> logits, int iterations, Communicator& comm, Site site = Site::here());

}  // namespace weft
