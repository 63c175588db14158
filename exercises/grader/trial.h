// SPDX-License-Identifier: Apache-2.0
#pragma once
// What an answer gives on all ranks, for one division of the samples.
#include "exercises/grader/lesson.h"

namespace weft::grader {

// One tensor for each rank.
using OfRanks = std::vector<Tensor>;

struct Trial {
  std::vector<OfRanks> quantities;
  std::string error;  // what it ended with, or empty
};

const std::vector<Rows>& divisions();
std::string text(const Rows& samples);  // "3 ranks with 3, 0, 2"
Trial tried(const Measure& answer, size_t quantities, const Rows& samples);
std::vector<Trial> tried(const Measure& answer, size_t quantities);  // for all divisions

// Up to rounding, by default of f64; NaN equals NaN.
bool equal(double a, double b, double rounding = 1e-9);
bool equal(const Tensor& a, const Tensor& b, double rounding = 1e-9);
bool equal(const OfRanks& a, const OfRanks& b);

}  // namespace weft::grader
