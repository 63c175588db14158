// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/report/figure.h"

#include <nlohmann/json.hpp>

namespace weft {

std::string json(const std::vector<Figure>& figures) {
  nlohmann::ordered_json all = nlohmann::ordered_json::object();
  for (const auto& [name, value, number] : figures)
    all[name] = number ? nlohmann::ordered_json(*number) : nlohmann::ordered_json(value);
  return all.dump();
}

}  // namespace weft
