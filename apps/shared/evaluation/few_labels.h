// SPDX-License-Identifier: Apache-2.0
#pragma once
// How well a linear classifier does that has seen few labels of each class.
#include "apps/shared/evaluation/probe.h"
#include "weft/engine/tensor/random.h"

namespace weft {

struct Draws {
  double mean = 0, deviation = 0;  // of the test accuracy over the draws; the deviation estimates that of all draws
};

// Trains the linear probe `draws` times, each time on `per_class` training samples of each class, or all if there are
// fewer. `labels` are those of all ranks' training samples in order, the same on every rank, of which `train` has this
// rank's part. Which samples are drawn depends on the key and the labels alone.
Draws few_label_probe(const LabelledFeatures& train, const Tensor& labels, const LabelledFeatures& test,
                      int64_t classes, int64_t per_class, int64_t draws, Random key, Communicator& comm);

}  // namespace weft
