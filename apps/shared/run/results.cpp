// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/results.h"

#include <nlohmann/json.hpp>

namespace weft {

std::string json(const Results& results) {
  using Json = nlohmann::ordered_json;
  Json words = Json::object();
  for (const Figure& figure : results.figures) words[figure.name] = figure.value;
  const Json all = {{"program", results.program},
                    {"title", results.title},
                    {"data", results.data},
                    {"begun", results.begun},
                    {"ranks", results.ranks},
                    {"step", results.step},
                    {"steps", results.steps},
                    {"state", results.state},
                    {"figures", Json::parse(json(results.figures))},
                    {"words", words}};
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";  // a folder's name may be no UTF-8
}

}  // namespace weft
