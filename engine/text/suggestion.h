// SPDX-License-Identifier: Apache-2.0
#pragma once
// Suggestions for misspelt names.
#include <string>
#include <vector>

namespace weft {

// The least number of letters to insert, remove, replace or swap with their neighbour that makes `a` into `b`.
size_t edit_distance(const std::string& a, const std::string& b);

// "; did you mean nt_xent?", or empty if no name is similar: with one mistake, or one in every four letters, or with
// more letters at its end.
std::string suggestion(const std::string& given, const std::vector<std::string>& names);

}  // namespace weft
