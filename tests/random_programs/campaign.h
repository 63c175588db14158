// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tries many programs, counts what happens to them, and prints those that show a mistake.
#include <chrono>

#include "tests/random_programs/trial.h"

namespace weft::random_programs {

class Campaign {
 public:
  struct Options {
    Rules rules = {};
    uint64_t first = 0;    // the number of the first program
    int printed = 3;       // how many programs are shrunk and printed for each kind of finding
    bool reasons = false;  // whether to count why steps are refused
  };
  explicit Campaign(Options options) : options_(std::move(options)) {}

  // Of a program that is about one kind of step, what is left without such a step counts as refused.
  void try_one(const Program& program, std::optional<int> about = {});
  bool report() const;  // whether nothing is wrong

 private:
  struct Count {
    int programs = 0;
    uint64_t first = 0;  // the number of the first program
  };
  void print(const Trial& trial, const Finding& finding) const;
  void progress() const;

  const Options options_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  uint64_t tried_ = 0, wrong_ = 0;
  std::map<std::string, Count> findings_;
  std::map<std::string, int> steps_, reasons_;  // accepted, by kind; refused, by reason
};

}  // namespace weft::random_programs
