// SPDX-License-Identifier: Apache-2.0
#pragma once
// What people take for the adjoint of a collective.
#include <functional>
#include <string>
#include <vector>

#include "tools/web/blocks.h"

namespace weft::web {

// Blocks that are multiplied by a factor, as a backward might apply them to the cotangents.
struct Backward {
  Blocks blocks;
  double factor = 1;
};

struct Mistake {
  const char* name;
  const char* signature;  // of verify.md, or empty
  const char* what;       // the sentence that a learner reads
  Backward (*made_of)(const Blocks& forward);
};

const std::vector<Mistake>& mistakes();  // the first is none: the adjoint
const Mistake& mistake_named(const std::string& name);

// Whether two backwards give the same to all ranks, whatever the cotangents.
bool equal_for_all(const Backward& a, const Backward& b);

}  // namespace weft::web
