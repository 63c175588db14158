// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tenth of a set that is kept for tests if the set itself names none.
#include <string_view>

#include "weft/data/pictures.h"

namespace weft {

// Depends on the name of the file alone.
bool is_held_out(std::string_view path);

// Moves every tenth picture from `train` to `test`, and notes it.
void hold_out(Pictures& pictures);

}  // namespace weft
