// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <vector>

#include "tools/weft/plan/plan.h"

namespace weft::plan {

std::string text_of(const std::vector<PlannedStep>& steps);
std::string json_of(const std::vector<PlannedStep>& steps);

}  // namespace weft::plan
