// SPDX-License-Identifier: Apache-2.0
#pragma once
// Wrong answers, written as learners write them, and what the grader must say of each.
#include <catch2/catch.hpp>

#include "exercises/grader/grade.h"
#include "exercises/grader/lessons.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/engine/tape/record.h"

namespace weft::grader {

inline void expect_wrong(const Lesson& lesson, std::initializer_list<const char*> said) {
  const Grade given = grade(lesson);
  INFO(given.text);
  CHECK(given.outcome == Grade::wrong);
  for (const char* text : said) CHECK_THAT(given.text, Catch::Contains(text));
}

// The usual parts of an answer.
inline double total(int64_t own, Communicator& comm) { return static_cast<double>(total_rows(comm.rows_of(own))); }
inline Tensor scaled(const Tensor& x, double factor) { return (Var(x) * factor).value(); }

}  // namespace weft::grader
