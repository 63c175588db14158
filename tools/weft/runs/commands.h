// SPDX-License-Identifier: Apache-2.0
#pragma once
// The command `weft runs`.
#include <CLI/CLI.hpp>

namespace weft::runs {

// Adds the command to the program's. It sets the exit code.
void add_runs(CLI::App& app, int& code);

}  // namespace weft::runs
