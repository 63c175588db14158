// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/choices/named_rule.h"

#include <algorithm>
#include <iterator>

namespace weft {
namespace {

struct NamedRule {
  std::string name;
  Rule (*make)(const RuleChoice& c);
  Rule (*for_vectors)(const RuleChoice& c);  // null if it is the same
};

Rule adamw(const RuleChoice& c) { return AdamW{.beta1 = c.beta1, .beta2 = c.beta2, .weight_decay = c.weight_decay}; }

const std::vector<NamedRule> rules = {
    {"sgd", [](const RuleChoice& c) -> Rule { return Sgd{.momentum = c.momentum, .weight_decay = c.weight_decay}; },
     nullptr},
    {"adam",
     [](const RuleChoice& c) -> Rule {
       return Adam{.beta1 = c.beta1, .beta2 = c.beta2, .weight_decay = c.weight_decay};
     },
     nullptr},
    {"adamw", adamw, nullptr},
    {"lars", [](const RuleChoice& c) -> Rule { return Lars{.momentum = c.momentum, .weight_decay = c.weight_decay}; },
     [](const RuleChoice& c) -> Rule { return Lars{.momentum = c.momentum, .adapt = false}; }},
    {"lamb",
     [](const RuleChoice& c) -> Rule {
       return Lamb{.beta1 = c.beta1, .beta2 = c.beta2, .weight_decay = c.weight_decay};
     },
     [](const RuleChoice& c) -> Rule {
       return Lamb{.beta1 = c.beta1, .beta2 = c.beta2, .weight_decay = 0, .adapt = false};
     }},
    {"muon",
     [](const RuleChoice& c) -> Rule {
       return Muon{.momentum = c.momentum, .weight_decay = c.weight_decay, .adjust = Muon::Adjust::match_rms_adamw};
     },
     adamw},
    {"adafactor", [](const RuleChoice& c) -> Rule { return Adafactor{.weight_decay = c.weight_decay}; }, nullptr},
};

const NamedRule& rule_named(const std::string& name) {
  const auto found = std::find_if(rules.begin(), rules.end(), [&](const NamedRule& rule) { return rule.name == name; });
  require(found != rules.end(), "there is no optimizer called ", name);
  return *found;
}

}  // namespace

std::vector<std::string> names_of_rules() {
  std::vector<std::string> names;
  for (const NamedRule& rule : rules) names.push_back(rule.name);
  return names;
}

Rule RuleChoice::make() const { return rule_named(name).make(*this); }

std::vector<ParameterGroup> RuleChoice::groups(const std::vector<Parameter*>& parameters) const {
  const NamedRule& rule = rule_named(name);
  if (!rule.for_vectors) return {{parameters, rule.make(*this)}};
  ParameterGroup matrices{{}, rule.make(*this)}, vectors{{}, rule.for_vectors(*this)};
  for (Parameter* parameter : parameters)
    (parameter->value.shape().rank() > 1 ? matrices : vectors).parameters.push_back(parameter);
  return {matrices, vectors};
}

}  // namespace weft
