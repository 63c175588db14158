// SPDX-License-Identifier: Apache-2.0
// Tries random programs, and prints those that show a mistake of Weft; README.md has an example.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "tests/random_programs/generate.h"
#include "tests/random_programs/print.h"
#include "tests/random_programs/shrink.h"

using namespace weft::random_programs;

namespace {

struct Options {
  uint64_t seed = 1, programs = 1000;
  Features only;
  Rules rules;
  int print = 3;  // how many findings of a kind to shrink and print
  bool reasons = false;
};

Options parsed(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const auto value = [&]() -> std::string {
      if (++i == argc) weft::fail({option, " needs a value"});
      return argv[i];
    };
    if (option == "--seed")
      options.seed = std::stoull(value());
    else if (option == "--programs")
      options.programs = std::stoull(value());
    else if (option == "--print")
      options.print = std::stoi(value());
    else if (option == "--reasons")
      options.reasons = true;
    else if (option == "--known")
      options.rules.known.push_back(value());
    else if (option == "--only")
      for (std::istringstream list(value()); list.good();) {
        std::string feature;
        std::getline(list, feature, ',');
        if (!all_features().contains(feature)) weft::fail({"--only: no feature is named ", feature});
        options.only.insert(feature);
      }
    else
      weft::fail(
          {"random_programs [--programs N] [--seed S] [--only FEATURE,...] [--known REASON] [--print N] [--reasons]"});
  }
  return options;
}

class Campaign {
 public:
  explicit Campaign(Options options) : options_(std::move(options)) {}

  bool run() {
    for (uint64_t i = 0; i < options_.programs; ++i) {
      try_one(i);
      if ((i + 1) % 1000 == 0) std::cout << i + 1 << " programs, " << wrong_ << " wrong\n" << std::flush;
    }
    report();
    return wrong_ == 0;
  }

 private:
  void try_one(uint64_t number) {
    const Program program = random_program(options_.seed * 1'000'003 + number, options_.only);
    const auto [trial, finding] = tried(program, options_.rules);
    static const char* const verdicts[] = {"right", "refused: ", "unclear: ", "WRONG: "};
    const std::string what = verdicts[static_cast<int>(finding.verdict)] + finding.what;
    const int before = counts_[what]++;
    if (options_.reasons)
      for (const std::string& reason : trial.reports[0].dropped) ++reasons_[without_numbers(reason)];
    if (finding.what == "refused on some ranks only" && options_.reasons) {
      for (const auto& report : trial.reports) {
        std::cout << number << " rank: " << report.refused << " | " << report.asked << " | " << report.second_refused
                  << '\n';
        for (const auto& reason : report.dropped) std::cout << "    " << reason << '\n';
      }
    }
    if (finding.verdict == Verdict::right)
      for (const Step& step : trial.program.steps) ++steps_[step_kinds()[static_cast<size_t>(step.kind)].name];
    if (finding.verdict == Verdict::unclear && options_.reasons)
      std::cout << number << ": " << finding.what << ": " << finding.details << '\n';
    if (finding.verdict != Verdict::wrong) return;
    ++wrong_;
    if (before < options_.print) print(number, trial, finding);
  }

  void print(uint64_t number, const Trial& trial, const Finding& finding) {
    const Program found = trial.up_to_wrong_refusal ? *trial.up_to_wrong_refusal : trial.program;
    std::cout << "\nprogram " << number << ": " << finding.what << ": " << finding.details << '\n' << std::flush;
    const Program small = shrunk(found, finding, options_.rules);
    Rules alone = options_.rules;
    alone.drops = false;
    std::cout << tried(small, alone).finding.details << '\n' << printed(small) << std::flush;
  }

  void report() const {
    std::cout << '\n';
    for (const auto& [what, count] : counts_) std::cout << count << "  " << what << '\n';
    int all = 0;
    for (const auto& [kind, count] : steps_) all += count;
    std::cout << steps_.size() << " of " << step_kinds().size() << " kinds of steps in right programs, " << all
              << " steps\n";
    for (const auto& [reason, count] : reasons_) std::cout << count << "  step refused: " << reason << '\n';
  }

  const Options options_;
  uint64_t wrong_ = 0;
  std::map<std::string, int> counts_, steps_, reasons_;
};

}  // namespace

int main(int argc, char** argv) try {
  return Campaign(parsed(argc, argv)).run() ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 2;
}
