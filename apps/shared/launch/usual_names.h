// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a user meant by a name that there is not.
#include <string>
#include <vector>

namespace weft {

// "; did you mean --encoder?", or empty: what other programs call one of `names`, one that begins like this, or one
// that is spelt similarly.
std::string what_was_meant(const std::string& given, const std::vector<std::string>& names);

}  // namespace weft
