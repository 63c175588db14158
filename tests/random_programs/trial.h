// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs a program on all its ranks, and judges what they report.
#include <map>

#include "tests/random_programs/selection.h"

namespace weft::random_programs {

// What Weft says of a value that it claims to be equal on the ranks of a group, and the values.
struct Claim {
  std::string of;
  int partition;
  Placement placement;
  Shape shape;
  std::vector<double> values;
};

// A derivative along the direction of all leaves: this rank's terms, by the tape and by differences.
struct Slope {
  double by_tape = 0;
  double scale = 0;            // the sum of the magnitudes of the terms
  std::vector<double> values;  // at all `distances`
};
inline constexpr double distances[] = {-2, -1, 1, 2, 0};  // in steps

// What a custom collective got and made on this rank.
struct Exchange {
  int step;
  std::vector<double> given, made;
};

// What one rank reports.
struct Report {
  Refusals dropped;     // of what was left out
  std::string refused;  // why Weft refused the program, if it did
  std::string asked;    // why it refused the same program with queries
  std::string second_refused;
  double weight = 1;  // how often this rank's loss counts in the objective
  Slope first, second;
  std::vector<std::vector<double>> gradients, gradients_of_backward, gradients_with_queries;
  double loss = 0, loss_with_queries = 0;
  std::vector<Claim> claims;
  std::vector<Exchange> exchanges;
  std::vector<std::string> must_refuse;  // calls that should have been refused
};

struct Trial {
  Program program;  // the accepted part of it
  double step;      // by which leaves are moved
  std::vector<Report> reports;
  std::string failure;                         // why a rank ended the run, if one did
  std::optional<Program> up_to_wrong_refusal;  // the first steps, up to one that should not have been refused
};

struct Rules {
  // Parts of the reasons that must not refuse a right program: internal limits and errors.
  std::vector<std::string> wrong_refusals = {"tape that is gone",
                                             "groups of ranks on one tape",
                                             "different ones meet in one op",
                                             "out of range",
                                             "bad_alloc",
                                             "vector::",
                                             "not on this tape",
                                             "not implemented"};
  std::vector<std::string> known = {};  // those that are known and not looked for now
  bool drops = true;                    // whether steps that Weft refuses are left out, or refuse the program
  double step = 1e-3;

  bool is_wrong_refusal(const std::string& reason) const;
};
Trial try_program(const Program& program, const Rules& rules = {});

enum class Verdict : uint8_t { right, refused, unclear, wrong };
struct Finding {
  Verdict verdict = Verdict::right;
  std::string what;  // the kind of mistake, without numbers
  std::string details;
};
Finding judge(const Trial& trial, const Rules& rules = {});

// Both; a program that is near a kink is tried again with a smaller step.
struct Result {
  Trial trial;
  Finding finding;
};
Result tried(const Program& program, Rules rules = {});

// The reason without its numbers, to count equal ones.
std::string without_numbers(const std::string& text);

}  // namespace weft::random_programs
