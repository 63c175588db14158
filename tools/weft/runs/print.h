// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs as a table for people, as JSON for programs, and side by side on a page.
#include "tools/weft/runs/run_summary.h"

namespace weft::runs {

std::string text_of(const std::vector<RunSummary>& runs);
std::string json_of(const std::vector<RunSummary>& runs);

// Figures, options that differ, and curves over each other, in the form of a run's own report.
constexpr size_t most_on_a_page = 5;  // a chart has no more colors
std::string page_of(const std::vector<RunSummary>& runs);

}  // namespace weft::runs
