// SPDX-License-Identifier: Apache-2.0
#pragma once
// The commands `weft plan`, `weft schedule` and `weft link`.
#include <CLI/CLI.hpp>

namespace weft::plan {

// Adds the commands to the program's. A command sets the exit code.
void add_plan(CLI::App& app, int& code);
void add_schedule(CLI::App& app, int& code);
void add_link(CLI::App& app, int argc, char** argv, int& code);

}  // namespace weft::plan
