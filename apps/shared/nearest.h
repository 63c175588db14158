#pragma once
// What somebody who misspelt a name may have meant.
#include <string>
#include <vector>

namespace weft {

// How many letters must be inserted, removed, replaced or swapped with their neighbour to make one of the other.
size_t edit_distance(const std::string& a, const std::string& b);

// "; did you mean nt_xent?", or nothing if no name is near.
std::string suggestion(const std::string& given, const std::vector<std::string>& names);

}  // namespace weft
