// SPDX-License-Identifier: Apache-2.0
#pragma once
// How far a gradient is from the truth. The truth is what one process makes of the whole batch; its rounding is by how
// much the same step moves when all that goes into it is off by its precision.
#include <cstdint>
#include <span>

namespace weft::verify {

// Of numbers of one type, all of one shape: so many rows, of so many elements together.
template <class T> struct Expected {
  const T* truth;
  std::span<const T* const> inexact;  // the same step, each time off by its precision
  const double* squares;              // of what ranks add up, which has been rounded, too, and may cancel; or none
  int terms;                          // so many are added up
  int64_t elements, rows;
  double epsilon;  // the distance of neighbours
};

struct Distance {
  double error = 0;  // in multiples of expected rounding: as a whole, of a row or of an element, whichever is most
  double cosine = 1, ratio = 1;
  double length = 0;  // of the truth
  double shown = 0;   // the smallest factor that would have been an error, less one
  int64_t worst_element = 0;
  double found = 0, truth = 0;  // there
};

// For float, double, Eigen::bfloat16 and Eigen::half.
template <class T> Distance distance(const T* found, const Expected<T>& expected);

}  // namespace weft::verify
