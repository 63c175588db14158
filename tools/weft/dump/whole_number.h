// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <limits>
#include <nlohmann/json.hpp>

#include "weft/engine/tensor/error.h"

namespace weft::verify {

// A number in a manifest that counts something. nlohmann::json alone takes 1.5, true and 2^32 + 1 for 1.
inline int64_t whole_number(const nlohmann::json& value, int64_t least, int64_t most, const std::string& what) {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<uint64_t>() <= std::numeric_limits<int64_t>::max());
  require(fits && value.get<int64_t>() >= least && value.get<int64_t>() <= most, what, " is a whole number from ",
          least, " to ", most, ", not ", value.dump());
  return value.get<int64_t>();
}

}  // namespace weft::verify
