// SPDX-License-Identifier: Apache-2.0
#pragma once
// The command `weft grade`.
#include <CLI/CLI.hpp>

namespace weft::grader {

// Adds the command to the program's. It sets the exit code.
void add_grade(CLI::App& app, int& code);

}  // namespace weft::grader
