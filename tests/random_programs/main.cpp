// SPDX-License-Identifier: Apache-2.0
// Tries random programs, or the sweep, and prints those that show a mistake of Weft. README.md has examples.
#include <iostream>
#include <sstream>

#include "tests/random_programs/campaign.h"
#include "tests/random_programs/generate.h"
#include "tests/random_programs/sweep.h"

using namespace weft::random_programs;

namespace {

const char* const usage =
    "random_programs [OPTION...]\n"
    "  --programs N         how many random programs to try (1000)\n"
    "  --seed S             which ones (1)\n"
    "  --first N            the number of the first of them (0)\n"
    "  --only FEATURE,...   what they may have besides leaves, local operations and collectives\n"
    "  --sweep              instead, every operation on every placement over every kind of group\n"
    "  --every N            of the sweep, one program of N\n"
    "  --known REASON       a part of a refusal that should not be, but is known\n"
    "  --print N            how many programs to shrink and print for each kind of finding (3)\n"
    "  --reasons            count why steps are refused";

struct Options {
  uint64_t seed = 1, programs = 1000, first = 0, every = 1;
  bool sweep = false;
  Features only;
  Campaign::Options campaign;
};

Features features_in(const std::string& text) {
  Features features;
  for (std::istringstream list(text); list.good();) {
    std::string feature;
    std::getline(list, feature, ',');
    weft::require(all_features().contains(feature), "--only: no feature is named ", feature);
    features.insert(feature);
  }
  return features;
}

Options parsed(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const auto value = [&]() -> std::string {
      weft::require(++i < argc, option, " needs a value");
      return argv[i];
    };
    if (option == "--programs")
      options.programs = std::stoull(value());
    else if (option == "--seed")
      options.seed = std::stoull(value());
    else if (option == "--first")
      options.first = options.campaign.first = std::stoull(value());
    else if (option == "--only")
      options.only = features_in(value());
    else if (option == "--sweep")
      options.sweep = true;
    else if (option == "--every")
      options.every = std::stoull(value());
    else if (option == "--known")
      options.campaign.rules.known.push_back(value());
    else if (option == "--print")
      options.campaign.printed = std::stoi(value());
    else if (option == "--reasons")
      options.campaign.reasons = true;
    else
      weft::fail({usage});
  }
  return options;
}

bool run(const Options& options) {
  Campaign campaign(options.campaign);
  if (options.sweep) {
    uint64_t number = 0;
    for (const int ranks : {2, 3, 4})
      sweep(ranks, [&](const Program& program) {
        if (number++ % options.every == 0) campaign.try_one(program, program.steps.back().kind);
      });
  } else {
    for (uint64_t i = options.first; i < options.first + options.programs; ++i)
      campaign.try_one(random_program(options.seed * 1'000'003 + i, options.only));
  }
  return campaign.report();
}

}  // namespace

int main(int argc, char** argv) try { return run(parsed(argc, argv)) ? 0 : 1; } catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 2;
}
