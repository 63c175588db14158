// SPDX-License-Identifier: Apache-2.0
#pragma once
// All lessons, with the functions that this program is linked with: the solutions, or those that are not written yet.
#include "exercises/grader/lessons.h"

namespace weft::grader {

inline std::vector<Lesson> all_lessons() {
  return {cotangents(exercises::cotangents),
          geometric_mean(exercises::geometric_mean),
          mean_share(exercises::mean_share),
          gather(exercises::gather),
          attraction(exercises::attraction),
          two_layers(exercises::two_layers),
          whole_gradient(exercises::whole_gradient),
          whole_variance(exercises::whole_variance),
          gradient_of_both(exercises::gradient_of_both),
          updated_codes(exercises::updated_codes)};
}

}  // namespace weft::grader
