// SPDX-License-Identifier: Apache-2.0
// What a manifest says of the optimizer, and what a dump has of its updates.
#include "tools/weft/dump/optimizer.h"

#include "tools/weft/dump/dump_reader.h"
#include "tools/weft/dump/known_entries.h"
#include "tools/weft/dump/whole_number.h"

namespace weft::verify {
namespace {

using Json = nlohmann::json;

template <class Value> Value one_of(const std::string& name, const std::map<std::string, Value>& known) {
  std::string names;
  for (const auto& each : known) names += (names.empty() ? "" : ", ") + each.first;
  require(known.contains(name), "\"optimizer\" knows no '", name, "'; it knows ", names);
  return known.at(name);
}

}  // namespace

OptimizerRule optimizer_in(const Json& entry) {
  check_entries(entry, "\"optimizer\"",
                {"name", "rate", "clip", "weight_decay", "epsilon", "adjust", "iterations", "coefficients"});
  using Kind = OptimizerRule::Kind;
  using Adjust = OptimizerRule::Adjust;
  constexpr int64_t most_iterations = 100;
  const OptimizerRule usual;
  OptimizerRule rule;
  rule.kind = one_of<Kind>(entry.at("name"), {{"sgd", Kind::sgd}, {"adamw", Kind::adamw}, {"muon", Kind::muon}});
  rule.rate = entry.at("rate");
  rule.weight_decay = entry.value("weight_decay", usual.weight_decay);
  rule.clip = entry.value("clip", usual.clip);
  rule.epsilon = entry.value("epsilon", usual.epsilon);
  rule.adjust = one_of<Adjust>(
      entry.value("adjust", "original"),
      {{"none", Adjust::none}, {"original", Adjust::original}, {"match_rms_adamw", Adjust::match_rms_adamw}});
  rule.iterations = static_cast<int>(
      whole_number(entry.value("iterations", Json(usual.iterations)), 1, most_iterations, "the number of iterations"));
  rule.coefficients = entry.value("coefficients", usual.coefficients);
  for (const auto& [name, value] : {std::pair{"clip", rule.clip},
                                    {"weight_decay", rule.weight_decay},
                                    {"epsilon", rule.epsilon},
                                    {"rate", rule.rate}})
    require(value >= 0 && value <= 1e12, "\"optimizer\": ", name, " is from 0 to 1e12, not ", value);
  return rule;
}

void DumpReader::check_update(const StoredParameter& p) const {
  if (p.update.empty()) {
    require(p.weight.empty(), "verify: there is a 'weight/", p.name, "', but no 'update/", p.name, "'");
    return;
  }
  require(dump.optimizer.has_value(), "verify: 'update/", p.name, "' needs a section \"optimizer\" in manifest.json");
  require(dump.optimizer->weight_decay == 0 || !p.weight.empty(), "verify: with a weight decay 'update/", p.name,
          "' needs 'weight/", p.name, "'");
  const std::vector<Shape> slices = p.reduced_shapes(),
                           whole = whole_shapes(mesh_of(dump), layout_of(p.layout, dump).local, p.local_shapes());
  bool are_whole = true;
  for (size_t r = 0; r < dump.files.size(); ++r) {
    require(p.update[r].has_value(), where(r), ": there is no 'update/", p.name, "', which another rank has");
    are_whole &= p.update[r]->shape().size() == whole[r].size();
  }
  for (size_t r = 0; r < dump.files.size(); ++r) {
    const Shape& shape = p.update[r]->shape();
    require(are_whole || shape.size() == slices[r].size(), where(r), ": 'update/", p.name, "' has ", shape.size(),
            " elements, not ", slices[r].size());
    require(p.weight.empty() || (p.weight[r] && p.weight[r]->shape().size() == shape.size()), where(r), ": 'weight/",
            p.name, "' does not have as many elements as 'update/", p.name, "'");
    require(!dump.optimizer->needs_whole() || whole[r].rank() == 2, where(r), ": Muon updates matrices, and '", p.name,
            "' is ", whole[r]);
  }
}

}  // namespace weft::verify
