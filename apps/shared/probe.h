#pragma once
// How much a frozen network's features tell about classes it was never told of. Samples are divided among the ranks of
// a group; results are the same on every rank, and but for rounding on any number of ranks.
#include "collectives/communicator.h"
#include "engine/tensor.h"

namespace weft {

struct LabelledFeatures {
  Tensor rows;    // (samples, width), floating: this rank's
  Tensor labels;  // i64 (samples)
};

// The part of the test samples that a linear classifier gets right, which was trained on the features of the training
// samples, each brought to mean zero and variance one.
double linear_probe(const LabelledFeatures& train, const LabelledFeatures& test, int64_t classes, Communicator& comm);

// The same for a vote of the `neighbours` training samples with the most similar features, each vote weighted by
// exp(cosine similarity / 0.1).
double nearest_neighbours(const LabelledFeatures& train, const LabelledFeatures& test, int64_t classes,
                          int64_t neighbours, Communicator& comm);

}  // namespace weft
