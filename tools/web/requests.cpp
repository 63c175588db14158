// SPDX-License-Identifier: Apache-2.0
#include "tools/web/requests.h"

#include <nlohmann/json.hpp>

#include "apps/shared/report/tape_file.h"
#include "tools/web/contrast.h"
#include "tools/web/exercise.h"
#include "tools/web/outcome.h"
#include "tools/web/task.h"

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

Json json(const Mistake& mistake) {
  return {{"name", mistake.name}, {"signature", mistake.signature}, {"what", mistake.what}};
}
Json all_mistakes() {
  Json all = Json::array();
  for (const Mistake& mistake : mistakes()) all.push_back(json(mistake));
  return all;
}

Json json(const Verdict& verdict) {
  Json names = Json::array();
  for (const Mistake* mistake : verdict.names) names.push_back(json(*mistake));
  return {{"correct", verdict.correct},
          {"products", {verdict.forward, verdict.backward}},
          {"names", names},
          {"differences", verdict.differences},
          {"shows", verdict.shows}};
}

Json reply_to_exercise(const Json& request) {
  const Exercise exercise = exercise_of(request);
  const Answer answer = web::answer(exercise);
  const RecordedStep step{exercise.collective, 0, exercise.ranks, {&answer.tapes, 1}};
  return {
      {"inputs", answer.forward.inputs},  {"forward", json(answer.forward)}, {"backward", json(answer.backward.blocks)},
      {"factor", answer.backward.factor}, {"cotangents", answer.cotangents}, {"verdict", json(answer.verdict)},
      {"mistakes", all_mistakes()},       {"printed", answer.printed},       {"record", Json::parse(weft::json(step))}};
}

Json json(const Comparison& comparison) {
  return {{"equal", comparison.equal},
          {"equal_here", comparison.equal_here},
          {"equal_objectives", comparison.equal_objectives},
          {"names", comparison.names},
          {"says", comparison.says}};
}

Json json(const NamedValues& named) {
  return {{"name", named.name},
          {"line", named.line},
          {"leaf", named.leaf},
          {"values", named.values},
          {"cotangents", named.cotangents},
          {"gradients", named.gradients}};
}

// {"program": text}, and if wanted "ranks", "seed", and the program that is "right".
Json reply_to_program(const Json& request) {
  const Program program = parse(request.at("program"));
  const int ranks = program.ranks > 0 ? program.ranks : request.value("ranks", 1);
  require(ranks >= 1 && ranks <= most_ranks, "ranks: ", ranks, ", not 1 to ", most_ranks);
  const uint64_t seed = request.value("seed", uint64_t{0});
  const Outcome outcome = run(program, ranks, {seed});
  const RecordedStep step{"program", 0, ranks, {&outcome.tapes, 1}};
  Json names = Json::array();
  for (const NamedValues& named : outcome.names) names.push_back(json(named));
  Json all = {{"ranks", ranks},
              {"names", names},
              {"lines_of_nodes", outcome.lines_of_nodes},
              {"walked", outcome.walked},
              {"objective", outcome.objective},
              {"printed", outcome.printed},
              {"record", Json::parse(weft::json(step))}};
  if (const auto slope = slope_by_differences(program, ranks, seed))
    all["slopes"] = {{"gradients", outcome.slope}, {"differences", *slope}};
  if (request.contains("right")) all["comparison"] = json(compare(program, parse(request["right"]), ranks));
  return all;
}

// {"contrast": {"ranks": 4, "temperature": 0.2, "noise": 0.2, "steps": 100}}
Json reply_to_contrast(const Json& request) {
  Contrast settings;
  for (const auto& [name, value] : request.items()) {
    if (name == "ranks")
      settings.ranks = value;
    else if (name == "temperature")
      settings.temperature = value;
    else if (name == "noise")
      settings.noise = value;
    else if (name == "steps")
      settings.steps = value;
    else
      throw Error("a contrast has no '" + name + "'");
  }
  const ContrastOutcome outcome = contrast(settings);
  Json left = Json::array();
  for (const Left& each : outcome.left)
    left.push_back({{"name", each.mistake->name},
                    {"signature", each.mistake->signature},
                    {"ratio", each.ratio},
                    {"cosine", each.cosine}});
  return {{"loss", outcome.loss}, {"left", left}};
}

Json reply_to(const Json& request) {
  if (request.contains("program")) return reply_to_program(request);
  if (request.contains("contrast")) return reply_to_contrast(request["contrast"]);
  return reply_to_exercise(request);
}

}  // namespace

std::string reply(const std::string& text) try {
  return reply_to(Json::parse(text)).dump();
} catch (const std::exception& error) {
  return Json{{"error", error.what()}}.dump();
}

}  // namespace weft::web
