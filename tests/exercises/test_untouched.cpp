// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "exercises/grader/grade.h"
#include "tests/exercises/all_lessons.h"

using namespace weft::grader;

TEST_CASE("an exercise says that it is not written yet, and names its file") {
  for (const Lesson& lesson : all_lessons()) {
    const Grade given = grade(lesson);
    const std::string number = std::to_string(lesson.number);
    INFO(given.text);
    CHECK(given.outcome == Grade::not_written);
    CHECK(report(lesson) != 0);
    CHECK_THAT(given.text, Catch::Contains("exercises/" + std::string(2 - number.size(), '0') + number + "_"));
    CHECK_THAT(given.text, Catch::Contains(".cpp: not written yet"));
  }
}
