// SPDX-License-Identifier: Apache-2.0
#include "tests/random_programs/campaign.h"

#include <algorithm>
#include <iostream>

#include "tests/random_programs/print.h"
#include "tests/random_programs/shrink.h"

namespace weft::random_programs {

namespace {

bool has(const Program& program, int kind) {
  return std::any_of(program.steps.begin(), program.steps.end(), [&](const Step& step) { return step.kind == kind; });
}

std::string summary(const Finding& finding) {
  switch (finding.verdict) {
    case Verdict::right: return "right";
    case Verdict::refused: return "refused: " + finding.what;
    case Verdict::unclear: return "unclear: " + finding.what;
    default: return "WRONG: " + finding.what;
  }
}

}  // namespace

void Campaign::try_one(const Program& program, std::optional<int> about) {
  auto [trial, finding] = tried(program, options_.rules);
  if (finding.verdict == Verdict::right && about && !has(trial.program, *about))
    finding = {Verdict::refused, "what the program is about", ""};
  const uint64_t number = options_.first + tried_++;
  Count& count = findings_.try_emplace(summary(finding), Count{0, number}).first->second;
  ++count.programs;
  if (options_.reasons)
    for (const std::string& reason : trial.reports[0].dropped.reasons) ++reasons_[without_numbers(reason)];
  if (finding.verdict == Verdict::right)
    for (const Step& step : trial.program.steps) ++steps_[step_kinds()[static_cast<size_t>(step.kind)].name];
  if (finding.verdict == Verdict::wrong) {
    ++wrong_;
    std::cout << "program " << number << ": " << finding.what << ": " << finding.details << '\n' << std::flush;
    if (count.programs <= options_.printed) print(trial, finding);
  }
  if (tried_ % 1000 == 0) progress();
}

void Campaign::print(const Trial& trial, const Finding& finding) const {
  const Program found = trial.up_to_wrong_refusal ? *trial.up_to_wrong_refusal : trial.program;
  const Program small = shrunk(found, finding, options_.rules);
  Rules alone = options_.rules;
  alone.drops = false;
  std::cout << "shrunk: " << tried(small, alone).finding.details << '\n' << printed(small) << '\n' << std::flush;
}

void Campaign::progress() const {
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin_;
  std::cout << tried_ << " programs, " << static_cast<int>(static_cast<double>(tried_) / taken.count()) << "/s, "
            << wrong_ << " wrong\n"
            << std::flush;
}

bool Campaign::report() const {
  progress();
  for (const auto& [what, count] : findings_)
    std::cout << "  " << count.programs << " " << what << ", first in program " << count.first << '\n';
  int all = 0;
  for (const auto& [kind, count] : steps_) all += count;
  std::cout << all << " steps of " << steps_.size() << " kinds in right programs, of " << step_kinds().size() << '\n';
  for (const auto& [reason, count] : reasons_) std::cout << "  " << count << " steps refused: " << reason << '\n';
  return wrong_ == 0;
}

}  // namespace weft::random_programs
