// SPDX-License-Identifier: Apache-2.0
#pragma once
// Recipes: configurations that are installed beside the programs, and found by their names in --recipe.
#include <string>
#include <vector>

namespace weft {

std::vector<std::string> names_of_recipes();  // in alphabetical order
// The text of one; WrongOption, with the names that there are, for any other name.
std::string recipe_named(const std::string& name);

}  // namespace weft
