// SPDX-License-Identifier: Apache-2.0
#pragma once
// Names for classes of which only the numbers are known: "0", "1", ...
#include <cstdint>
#include <string>
#include <vector>

namespace weft {

inline std::vector<std::string> numbered_classes(int64_t count) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

}  // namespace weft
