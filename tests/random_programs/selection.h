// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which part of a random program Weft accepts. A step that it refuses is left out, or replaced by what the error
// advises.
#include "tests/random_programs/execution.h"

namespace weft::random_programs {

// What Weft has refused so far on this rank, also if the whole job has ended.
struct Refusals {
  std::vector<std::string> reasons;
  std::vector<uint32_t> steps;  // the dice of those that were steps
};

class Selection {
 public:
  // Every rank selects alike, unless Weft refuses a step on some ranks only.
  Selection(Program program, const Scene& scene, Refusals& refusals)
      : program_(std::move(program)), scene_(scene), refusals_(refusals) {}

  // Without terms if nothing is left.
  Program select();

  // The program up to the step of the first refusal of which `is_wrong` is true.
  std::optional<Program> up_to_refusal(const std::function<bool(const std::string&)>& is_wrong) const;

 private:
  struct Refused {
    std::string reason;
    Program up_to;
  };
  void select_steps(Execution& execution);
  void select_terms(Execution& execution);
  bool has_gradient(Execution& execution, const Var& loss);
  Program with_advice(const Program& program, const Refusal& refusal) const;
  void note(const std::string& reason, Program up_to);

  Program program_;
  const Scene& scene_;
  Refusals& refusals_;
  std::vector<Refused> refused_;
};

// Why Weft refuses what `body` does, or nothing. The end of the whole job is no refusal.
std::string why_refused(const std::function<void()>& body);

}  // namespace weft::random_programs
