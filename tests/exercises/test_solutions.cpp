// SPDX-License-Identifier: Apache-2.0
// The solutions are right, whatever the lesson.
#include <catch2/catch.hpp>

#include "exercises/grader/grade.h"
#include "tests/exercises/all_lessons.h"

using namespace weft::grader;

TEST_CASE("every solution of an exercise is right") {
  const std::vector<Lesson> lessons = all_lessons();
  REQUIRE(lessons.size() == 10);
  for (size_t i = 0; i < lessons.size(); ++i) {
    const Grade given = grade(lessons[i]);
    INFO(given.text);
    CHECK(lessons[i].number == static_cast<int>(i) + 1);
    CHECK(given.outcome == Grade::right);
  }
}
