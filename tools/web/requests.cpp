// SPDX-License-Identifier: Apache-2.0
#include "tools/web/requests.h"

#include <nlohmann/json.hpp>

#include "apps/shared/report/tape_file.h"
#include "tools/web/exercise.h"

namespace weft::web {
namespace {

using Json = nlohmann::ordered_json;

Exercise exercise_of(const Json& request) {
  Exercise e;
  for (const auto& [name, value] : request.items()) {
    if (name == "collective")
      e.collective = value;
    else if (name == "drawn")
      e.drawn = value.get<Cells>();
    else if (name == "ranks")
      e.ranks = value;
    else if (name == "uneven")
      e.uneven = value;
    else if (name == "root")
      e.root = value;
    else if (name == "seed")
      e.seed = value;
    else if (name == "mistake")
      e.mistake = value;
    else if (name == "backward")
      e.backward = value.get<Cells>();
    else
      throw Error("an exercise has no '" + name + "'");
  }
  return e;
}

Json json(const Blocks& blocks) {
  Json cells = Json::array();
  for (int r = 0; r < blocks.ranks(); ++r) {
    Json row = Json::array();
    for (int s = 0; s < blocks.ranks(); ++s) {
      const auto [from, count, to] = blocks.at(r, s);
      row.push_back(count > 0 ? Json{from, count, to} : Json(nullptr));
    }
    cells.push_back(row);
  }
  return cells;
}

Json names_of_mistakes() {
  Json names = Json::array();
  for (const Mistake& mistake : mistakes()) names.push_back(mistake.name);
  return names;
}

Json json(const Verdict& verdict) {
  Json names = Json::array();
  for (const Mistake* mistake : verdict.names)
    names.push_back({{"name", mistake->name}, {"signature", mistake->signature}, {"what", mistake->what}});
  return {{"correct", verdict.correct},
          {"products", {verdict.forward, verdict.backward}},
          {"names", names},
          {"differences", verdict.differences},
          {"shows", verdict.shows}};
}

}  // namespace

std::string reply(const std::string& request) try {
  const Exercise exercise = exercise_of(Json::parse(request));
  const Answer answer = web::answer(exercise);
  const RecordedStep step{exercise.collective, 0, exercise.ranks, {&answer.tapes, 1}};
  const Json all = {
      {"inputs", answer.forward.inputs},  {"forward", json(answer.forward)}, {"backward", json(answer.backward.blocks)},
      {"factor", answer.backward.factor}, {"cotangents", answer.cotangents}, {"verdict", json(answer.verdict)},
      {"mistakes", names_of_mistakes()},  {"printed", answer.printed},       {"record", Json::parse(weft::json(step))}};
  return all.dump();
} catch (const std::exception& error) {
  return Json{{"error", error.what()}}.dump();
}

}  // namespace weft::web
