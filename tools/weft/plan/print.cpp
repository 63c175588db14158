// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/plan/plan.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "weft/engine/text/units.h"
#include "weft/engine/text/words.h"

namespace weft::plan {
namespace {

std::string row(const std::string& ranks, const std::string& step, const std::string& communication,
                const std::string& longest, const std::string& images, const std::string& efficiency) {
  char line[120];
  std::snprintf(line, sizeof line, "%7s  %9s  %13s  %-16s  %8s  %10s\n", ranks.c_str(), step.c_str(),
                communication.c_str(), longest.c_str(), images.c_str(), efficiency.c_str());
  return line;
}

std::string longest(const PlannedStep& step) { return step.communication() > 0 ? text(step.longest()) : "none"; }

}  // namespace

std::string text_of(const std::vector<PlannedStep>& steps) {
  std::string table = row("ranks", "step", "communication", "most of it", "images/s", "efficiency");
  for (const PlannedStep& step : steps)
    table += row(grouped(step.ranks), in_seconds(step.whole()), percent(step.communication(), step.whole()),
                 longest(step), short_number(step.images_per_second), percent(step.efficiency, 1));
  return table;
}

std::string json_of(const std::vector<PlannedStep>& steps) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const PlannedStep& step : steps) {
    nlohmann::ordered_json calls = nlohmann::ordered_json::object();
    for (size_t v = 0; v < Traffic::verbs; ++v)
      if (step.seconds[v] > 0) calls[text(static_cast<Verb>(v))] = step.seconds[v];
    all.push_back({{"ranks", step.ranks},
                   {"seconds", step.whole()},
                   {"computing", step.computing},
                   {"communication", step.communication()},
                   {"most_of_it", longest(step)},
                   {"images_per_second", step.images_per_second},
                   {"efficiency", step.efficiency},
                   {"calls", calls}});
  }
  return all.dump(2) + "\n";
}

}  // namespace weft::plan
