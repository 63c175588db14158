// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is left of the gradient of NT-Xent if the backward of its gather has one of the usual mistakes. It depends on
// the features, so these are of a network that learns to recognize points in noise, before and after some steps.
#include <vector>

#include "tools/web/mistakes.h"

namespace weft::web {

struct Contrast {
  int ranks = 4;  // that divide the pairs equally
  double temperature = 0.2;
  double noise = 0.2;  // of the views, beside points of size 1
  int steps = 0;       // of training
};
inline constexpr int pairs_of_contrast = 120;

struct Left {
  const Mistake* mistake;
  double ratio, cosine;  // to the right gradient; a cosine of 0 where nothing is left
};
struct ContrastOutcome {
  double loss;
  std::vector<Left> left;
};

ContrastOutcome contrast(const Contrast& settings);  // an Error if the settings are none

}  // namespace weft::web
