// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a wrong result has to do with the right one, whatever the lesson.
#include <span>

#include "exercises/grader/trial.h"

namespace weft::grader {

// One quantity, for divisions of the samples: what is right, and what was given.
struct Compared {
  std::vector<Rows> divisions;
  std::vector<OfRanks> right, given;
};

// Rounding, or a factor that is the same everywhere or a ratio of counts. The signature is empty if there
// is none; the sentence is empty if nothing fits.
struct Pattern {
  std::string signature, what;
};
Pattern pattern_of(const Compared& compared);

// The first element that differs: "rank 0 has 2 at [1, 0], not 3", and the factor of this rank's values if they have
// one.
std::string difference(const OfRanks& right, const OfRanks& given);

}  // namespace weft::grader
