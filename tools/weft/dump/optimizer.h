// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <nlohmann/json.hpp>

#include "tools/weft/dump/evidence.h"

namespace weft::verify {

// "optimizer" of a manifest. An Error if a number is out of range.
OptimizerRule optimizer_in(const nlohmann::json& entry);

}  // namespace weft::verify
