// SPDX-License-Identifier: Apache-2.0
#pragma once
// A right program with one of the usual mistakes, in each place where it can be made.
#include "tools/web/program.h"

namespace weft::web {

struct Variant {
  std::string name;  // "own slot (S2) in all_gather", with the signature of verify.md if there is one
  Program program;
};

std::vector<Variant> variants(const Program& right);

}  // namespace weft::web
