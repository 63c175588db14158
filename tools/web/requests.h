// SPDX-License-Identifier: Apache-2.0
#pragma once
// Exercises and answers as JSON, as the page asks and reads them.
#include <string>

namespace weft::web {

// Of an exercise or a program, its answer; of anything else {"error": ...}.
std::string reply(const std::string& request);

}  // namespace weft::web
