// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "tests/random_programs/program.h"

namespace weft::random_programs {

// The program as a test: C++ that compiles with the headers of this folder.
std::string printed(const Program& program);

}  // namespace weft::random_programs
