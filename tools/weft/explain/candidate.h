// SPDX-License-Identifier: Apache-2.0
#pragma once
// What ranks may have instead of the right gradient: the right numbers, but not where they belong.
#include "tools/weft/explain/given.h"

namespace weft::verify {

struct Candidate {
  std::string text;
  Given::Predicted predicted;
};
// Adds it if it explains what all ranks have.
void add_if_right(std::vector<Described>& all, const Given& given, const Candidate& candidate);

}  // namespace weft::verify
