// SPDX-License-Identifier: Apache-2.0
#pragma once
// Grades an answer: compares it with the right one on 1, 3 and 5 ranks, with even, uneven and empty shards, and names
// what is wrong by the wrong answers that people give.
#include "exercises/grader/lesson.h"

namespace weft::grader {

struct Grade {
  enum Outcome { right = 0, wrong = 1, not_written = 2 } outcome;
  std::string text;  // a table, and what is wrong
};
Grade grade(const Lesson& lesson);

// Prints the grade and returns the exit status.
int report(const Lesson& lesson);

}  // namespace weft::grader
