// SPDX-License-Identifier: Apache-2.0
#pragma once
// How well classes can be predicted from the features of a frozen network. Samples are divided among the ranks of a
// group. Results are the same on every rank, and on any number of ranks up to rounding.
#include "weft/collectives/communicator.h"
#include "weft/engine/tensor/tensor.h"

namespace weft {

struct LabelledFeatures {
  Tensor rows;    // (samples, width), floating: this rank's
  Tensor labels;  // i64 (samples)

  LabelledFeatures clone() const { return {rows.clone(), labels}; }  // whose rows may be overwritten
};

// Brings each feature of all ranks' training samples to mean zero and variance one, and those of the test samples by
// the same change.
void standardize(Tensor& train, Tensor& test, double samples, Communicator& comm);

// The part of all ranks' samples whose guess, i64 (samples), is their label.
double accuracy_of(const Tensor& guesses, const Tensor& labels, Communicator& comm);

// The test accuracy of a linear classifier that is trained on the features of the training samples. Features are
// standardized to mean zero and variance one, in place, since they may take most of the memory.
double linear_probe(LabelledFeatures&& train, LabelledFeatures&& test, int64_t classes, Communicator& comm);

// The test accuracy of a vote of the `neighbours` training samples with the most similar features. Each vote is
// weighted by exp(cosine similarity / 0.1).
double nearest_neighbours(const LabelledFeatures& train, const LabelledFeatures& test, int64_t classes,
                          int64_t neighbours, Communicator& comm);

}  // namespace weft
