// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <nlohmann/json.hpp>

#include "weft/engine/tensor/error.h"
#include "weft/engine/text/suggestion.h"

namespace weft::verify {

// Error if an object of a manifest has other entries: what is misspelt would count as what is not there.
inline void check_entries(const nlohmann::json& object, const std::string& what,
                          const std::vector<std::string>& known) {
  if (!object.is_object()) return;  // which its reader says
  for (const auto& each : object.items())
    require(std::ranges::find(known, each.key()) != known.end(), what, " has no entry '", each.key(), "'",
            suggestion(each.key(), known));
}

}  // namespace weft::verify
