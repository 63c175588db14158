// SPDX-License-Identifier: Apache-2.0
// weft_bench                   measures every goal and prints a table
// weft_bench GOAL...           measures these goals
// weft_bench --json GOAL...    prints one JSON line per goal instead, after the goal has been measured
// weft_bench --cpu v3 GOAL...  restricts Weft, Eigen, oneDNN, PyTorch and MKL to the instructions of an older CPU
// weft_bench --list            lists the goals
//
// Exit status: 0 if all goals hold, 1 if one does not, 77 if one could not be measured here and the others hold, 64 for
// wrong usage.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/measuring/goal.h"
#include "weft/engine/kernels/cpu_kinds.h"

namespace weft::bench {
namespace {

struct Outcome {
  const Goal& goal;
  std::vector<Check> checks;
  std::string skipped;  // the reason, if the goal could not be measured
  double neighbours = 0;

  bool holds() const {
    return std::all_of(checks.begin(), checks.end(), [](const Check& check) { return check.holds(); });
  }
  int status() const { return !skipped.empty() ? 77 : holds() ? 0 : 1; }
};

Outcome measure(const Goal& goal) {
  Outcome outcome{goal, {}, "", 0};
  const Neighbours neighbours;
  try {
    outcome.checks = goal.measure();
  } catch (const Unavailable& reason) {
    outcome.skipped = reason.reason;
  }
  outcome.neighbours = neighbours.cores();
  return outcome;
}

const char* symbol(Sense sense) { return sense == Sense::at_least ? ">=" : sense == Sense::at_most ? "<=" : ""; }

void print(const Outcome& outcome) {
  fmt::print("{}: {}\n", outcome.goal.name, outcome.goal.statement);
  if (!outcome.skipped.empty()) fmt::print("  not measured: {}\n", outcome.skipped);
  for (const Check& check : outcome.checks) {
    const Middle& v = check.value;
    const bool bounded = check.sense != Sense::shown;
    fmt::print("  {:<38} {:>14} {:>14} {:>9.4g}  {:>6.4g}..{:<6.4g} {:>2} {:<6} {}{}\n", check.what, check.ours,
               check.theirs, v.median, v.low, v.high, symbol(check.sense),
               bounded ? fmt::format("{:.4g}", check.bound) : "",
               !bounded        ? ""
               : check.holds() ? "holds"
                               : "DOES NOT HOLD",
               v.high - v.low > 0.15 * v.median ? "  (varies by more than 15 %)" : "");
  }
  if (outcome.neighbours > 0.05) fmt::print("  (other processes kept {:.1f} cores busy)\n", outcome.neighbours);
  std::fflush(stdout);
}

nlohmann::ordered_json json(const Check& check) {
  return {{"what", check.what},           {"ours", check.ours},     {"theirs", check.theirs},
          {"value", check.value.median},  {"low", check.value.low}, {"high", check.value.high},
          {"sense", symbol(check.sense)}, {"bound", check.bound},   {"holds", check.holds()}};
}

// The line has the values of the check with the smallest margin, and all checks in a list.
void print_json(const Outcome& outcome) {
  nlohmann::ordered_json line = {{"goal", outcome.goal.name}};
  const auto least = [](const Check& a, const Check& b) { return a.margin() < b.margin(); };
  const auto worst = std::min_element(outcome.checks.begin(), outcome.checks.end(), least);
  if (worst == outcome.checks.end()) {
    line.update({{"value", nullptr}, {"bound", nullptr}, {"holds", nullptr}, {"skipped", outcome.skipped}});
  } else {
    line.update(json(*worst));
    for (const Check& check : outcome.checks) line["checks"].push_back(json(check));
    line["neighbours"] = outcome.neighbours;
  }
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);
}

int usage(const std::string& complaint) {
  fmt::print(stderr, "{}\nusage: weft_bench [--list] [--json] [--cpu KIND] [GOAL...]\ngoals:", complaint);
  for (const Goal* goal : Goal::all()) fmt::print(stderr, " {}", goal->name);
  fmt::print(stderr, "\n");
  return 64;
}

// Restricts this program and its children by environment variables, which must be set before any library reads them.
void restrict_to(const std::string& kind) {
  setenv("WEFT_CPU", kind.c_str(), 1);
  if (kind == "v3") {
    setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
    setenv("ATEN_CPU_CAPABILITY", "avx2", 1);
    setenv("MKL_ENABLE_INSTRUCTIONS", "AVX2", 1);
  }
}

int run(const std::vector<std::string>& arguments) {
  std::vector<const Goal*> goals;
  bool as_json = false, kind_follows = false;
  for (const std::string& argument : arguments) {
    if (std::exchange(kind_follows, false)) {
      restrict_to(argument);
    } else if (argument == "--cpu") {
      kind_follows = true;
    } else if (argument == "--json") {
      as_json = true;
    } else if (argument == "--list") {
      for (const Goal* goal : Goal::all()) fmt::print("{:<11} {}\n", goal->name, goal->statement);
      return 0;
    } else if (const Goal* goal = Goal::find(argument)) {
      goals.push_back(goal);
    } else {
      return usage("there is no goal " + argument);
    }
  }
  if (goals.empty()) goals = Goal::all();
  if (!as_json)
    fmt::print("{}\n{:<40} {:>14} {:>14} {:>9}  {:>6}..{:<6} bound\n",
               backend(Device::cpu).description() + ", kernels for " + chosen_cpu_kind().name, "", "ours", "theirs",
               "value", "min", "max");
  int status = 0;
  for (const Goal* goal : goals) {
    const Outcome outcome = measure(*goal);
    as_json ? print_json(outcome) : print(outcome);
    if (status != 1 && outcome.status() != 0) status = outcome.status();
  }
  return status;
}

}  // namespace
}  // namespace weft::bench

int main(int count, char** arguments) {
  try {
    return weft::bench::run({arguments + 1, arguments + count});
  } catch (const std::exception& error) {
    fmt::print(stderr, "weft_bench: {}\n", error.what());
    return 2;
  }
}
