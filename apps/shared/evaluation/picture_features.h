// SPDX-License-Identifier: Apache-2.0
#pragma once
// What an encoder makes of a data set, and how well a linear classifier predicts classes from it.
#include "apps/shared/evaluation/probe.h"
#include "weft/data/pictures.h"
#include "weft/engine/nn/init.h"
#include "weft/engine/nn/module.h"

namespace weft {

// A frozen encoder's features of this rank's part of some pictures, or the pixels if there is no encoder. Every rank
// computes the same number of pieces, since with --zero 3 each piece contains collectives.
LabelledFeatures features_of(const LabelledImages& data, Layer* encoder, const Init& like, Communicator& comm);

// The test accuracy of a linear classifier of features, or of pixels.
double probe(const Pictures& data, Layer* encoder, const Init& like, Communicator& comm);

}  // namespace weft
