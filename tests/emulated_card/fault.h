// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a kernel did wrong. As on a real card, every later call that can report it does, until the program ends.
#include <string>

namespace weft::emulated {

void report_fault(std::string what);  // the first one is kept
const char* fault();                  // null without a fault

}  // namespace weft::emulated
