// SPDX-License-Identifier: Apache-2.0
#pragma once
// How well a linear classifier does that has seen few labels of each class. It is a ridge regression of the classes,
// since a classifier that is only trained to separate so few samples fits what they have by chance. Features are
// standardized by all training samples, which takes no labels.
#include "apps/shared/evaluation/probe.h"
#include "weft/engine/tensor/random.h"

namespace weft {

struct Draws {
  double mean = 0, deviation = 0;  // of the test accuracy over the draws; the deviation estimates that of all draws
};

// Fits the classifier `draws` times, each time to `per_class` training samples of each class, or all if there are
// fewer. `labels` are those of all ranks' training samples in order, the same on every rank, of which `train` has this
// rank's part. Which samples are drawn depends on the key and the labels alone.
// Overwrites the features, as linear_probe does.
Draws few_label_probe(LabelledFeatures&& train, const Tensor& labels, LabelledFeatures&& test, int64_t classes,
                      int64_t per_class, int64_t draws, Random key, Communicator& comm);

}  // namespace weft
