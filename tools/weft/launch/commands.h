// SPDX-License-Identifier: Apache-2.0
#pragma once
// The command `weft launch`.
#include <CLI/CLI.hpp>

namespace weft::launch {

// Adds the command to the program's. It sets the exit code.
void add_launch(CLI::App& app, int& code);

}  // namespace weft::launch
