// SPDX-License-Identifier: Apache-2.0
#pragma once
// Slopes by finite differences, and how they compare with those that a gradient predicts. Every number here knows how
// inexact it may be: the values at two step sizes tell, so there is no tolerance to set.
#include "tools/weft/dump/evidence.h"

namespace weft::verify {

// How far off a single value may be, by rounding or by a kink of the function: what is left of its fourth difference,
// of which a smooth function has next to none.
double noise_of(const MovedValues& values);

// Slopes along the directions of one parameter, and how far off all of them together may be.
struct Slopes {
  Eigen::VectorXd along;
  double rounding;    // of the values
  double truncation;  // of the rule, since a function is no polynomial

  double tolerance() const { return rounding + truncation; }
};

// `noise` of a single value.
Slopes slopes_of(const MovedValues& values, double step, double noise);
Slopes slopes_of(const Matrix& gradient, const Matrix& directions, double epsilon);

// By what factor slopes are off that should be equal.
struct Factor {
  Slopes ours, expected;

  double tolerance(double value) const { return std::abs(value) * expected.tolerance() + ours.tolerance(); }
  double distance(double value) const { return (ours.along - value * expected.along).norm(); }
  bool is(double value) const { return distance(value) <= tolerance(value); }
  bool flat() const { return expected.along.norm() <= expected.tolerance(); }  // nothing depends on the parameter

  double nearest() const;                                                     // the factor, if it is one
  bool is_multiple() const { return !flat() && is(nearest()); }               // and not a gradient in another direction
  double resolution() const { return tolerance(1) / expected.along.norm(); }  // how well the factor is known
};

// How the slopes of one parameter compare.
struct MeasuredParameter {
  const MovedParameter* parameter;
  std::optional<Factor> loss;           // of what the ranks' losses add up to, relative to the objective
  std::optional<Factor> reweighted;     // the same, if each rank's loss counts by its rows
  std::vector<Factor> gradients;        // by rank, relative to the losses, or to the objective if there are none
  std::map<std::string, Slopes> terms;  // of the objective
  Factor of_mean, of_sum;               // of the gradients of all ranks
  bool agree = true;                    // whether all ranks have the same gradient

  bool single() const { return parameter->directions.cols() == 1; }  // such as a temperature
};

// The factors of every parameter that was moved.
std::vector<MeasuredParameter> measured(const Dump& dump);

}  // namespace weft::verify
