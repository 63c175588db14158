// SPDX-License-Identifier: Apache-2.0
#pragma once
// The command `weft view`.
#include <CLI/CLI.hpp>

namespace weft::view {

// Adds the command to the program's. It sets the exit code.
void add_view(CLI::App& app, int& code);

}  // namespace weft::view
