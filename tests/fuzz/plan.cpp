// SPDX-License-Identifier: Apache-2.0
// A recorded run, from whose sessions.json `weft plan` predicts the time of a step on more ranks: every figure is a
// number that programs can read.
#include "tools/weft/plan/plan.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/fuzz/memory_file.h"

namespace weft::fuzz {
namespace {

void check(double figure, const char* what) { must(std::isfinite(figure) && figure >= 0, what); }

}  // namespace

void read(std::string_view bytes) {
  static const MemoryFile file;
  file.hold(bytes);
  plan::NodeLink link;
  link.latency = 20e-6;
  link.bandwidth = 1e9;
  link.ranks_per_node = 2;
  const plan::Plan plan({plan::read_run(file.path())}, link, {});
  std::vector<plan::PlannedStep> steps;
  for (const int64_t ranks : {1, 2, 3, 1 << 20}) {
    const plan::PlannedStep& step = steps.emplace_back(plan.at(ranks));
    check(step.whole(), "a step takes a time");
    check(step.images_per_second, "a speed is a number");
    check(step.efficiency, "an efficiency is a number");
  }
  must(!plan::text_of(steps).empty(), "people get a table");
  must(nlohmann::json::accept(plan::json_of(steps)), "programs get JSON");
}

}  // namespace weft::fuzz
