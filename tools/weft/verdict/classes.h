// SPDX-License-Identifier: Apache-2.0
#pragma once
// Mistakes that only several parameters together show.
#include "tools/weft/verdict/verdict.h"

namespace weft::verify {

struct Classified {
  std::string class_name;  // of the parameter
  Precision precision;
  Verdict verdict;
};

// S30: a factor that all parameters of one class have, and those of another do not.
void compare_classes(std::vector<Classified>& parameters);

}  // namespace weft::verify
