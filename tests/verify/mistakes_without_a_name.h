// SPDX-License-Identifier: Apache-2.0
#pragma once
// Mistakes of a reducer that have no name of their own, and what the verifier should say of each.
#include <functional>
#include <string>
#include <vector>

#include "tests/verify/planted_reduction.h"

namespace weft::planted {

struct Mistake {
  std::string kind, name;
  int passes;
  std::function<void(Job&)> plant;
  std::vector<std::string> said;  // one of these is
  bool in_bf16 = true;            // whether that can show it
};
std::vector<Mistake> mistakes_without_a_name();
// Those of them that are about where numbers are.
void add_mistakes_of_place(std::vector<Mistake>& all);

}  // namespace weft::planted
