// SPDX-License-Identifier: Apache-2.0
#pragma once
// The lesson of each function that is to be written, with that function or another one like it as the learner's.
#include "exercises/functions.h"
#include "exercises/grader/lesson.h"

namespace weft::grader {

Lesson cotangents(const std::function<decltype(exercises::cotangents)>& learner);
Lesson geometric_mean(const std::function<decltype(exercises::geometric_mean)>& learner);
Lesson mean_share(const std::function<decltype(exercises::mean_share)>& learner);
Lesson gather(const std::function<decltype(exercises::gather)>& learner);
Lesson attraction(const std::function<decltype(exercises::attraction)>& learner);
Lesson two_layers(const std::function<decltype(exercises::two_layers)>& learner);
Lesson whole_gradient(const std::function<decltype(exercises::whole_gradient)>& learner);
Lesson whole_variance(const std::function<decltype(exercises::whole_variance)>& learner);
Lesson gradient_of_both(const std::function<decltype(exercises::gradient_of_both)>& learner);
Lesson updated_codes(const std::function<decltype(exercises::updated_codes)>& learner);

}  // namespace weft::grader
