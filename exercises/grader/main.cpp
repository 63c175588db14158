// SPDX-License-Identifier: Apache-2.0
// Grades one exercise: FUNCTION is the one that it asks for.
#include "exercises/grader/grade.h"
#include "exercises/grader/lessons.h"

int main() { return weft::grader::report(weft::grader::FUNCTION(weft::exercises::FUNCTION)); }
