// SPDX-License-Identifier: Apache-2.0
#include "tests/random_programs/step_kinds.h"

#include <algorithm>

namespace weft::random_programs {

const std::vector<StepKind>& step_kinds() {
  static const std::vector<StepKind> all = [] {
    std::vector<StepKind> kinds;
    for (const auto& some : {leaf_kinds(), local_kinds(), registry_kinds(), collective_kinds(), conversion_kinds(),
                             custom_kinds(), training_kinds()})
      kinds.insert(kinds.end(), some.begin(), some.end());
    for (StepKind& kind : kinds)
      kind.over_group = kind.text.find("c.group") != std::string::npos || kind.trained == Training::Use::divided_layer;
    return kinds;
  }();
  return all;
}

int kind_named(const std::string& name) {
  const auto& kinds = step_kinds();
  const auto at = std::find_if(kinds.begin(), kinds.end(), [&](const StepKind& kind) { return kind.name == name; });
  require(at != kinds.end(), "random programs: no kind of step is named ", name);
  return static_cast<int>(at - kinds.begin());
}

}  // namespace weft::random_programs
