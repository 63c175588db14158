// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/report/tape_file.h"

#include <nlohmann/json.hpp>

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

// Of a node its number, inputs, placement and type, and of its value and cotangent the brief and the whole text.
Json json(const std::optional<TapeTable::Cell>& cell) {
  if (!cell) return nullptr;
  const auto& [number, inputs, placement, dtype, value, cotangent] = *cell;
  return {number, inputs, placement, dtype, value.brief, value.whole, cotangent.brief, cotangent.whole};
}

Json json(const TapeTable& table) {
  Json lines = Json::array();
  for (const TapeTable::Line& line : table.lines) {
    Json ranks = Json::array();
    for (const auto& cell : line.ranks) ranks.push_back(json(cell));
    lines.push_back({{"op", line.op}, {"collective", line.collective}, {"place", line.place}, {"ranks", ranks}});
  }
  return lines;
}

}  // namespace

std::string json(const RecordedStep& step) {
  Json tapes = Json::array();
  for (const TapeTable& table : step.tapes) tapes.push_back(json(table));
  const Json all = {{"title", step.title}, {"step", step.step}, {"ranks", step.ranks}, {"tapes", tapes}};
  return all.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace weft
