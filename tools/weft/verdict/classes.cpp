// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/verdict/classes.h"

#include <cmath>
#include <sstream>

namespace weft::verify {
namespace {

// Of one class, over its parameters: the factor that all have; none if they have different ones.
struct FactorOfClass {
  std::optional<double> value;
  bool mixed = false;

  void add(const Classified& parameter) {
    const auto& factor = parameter.verdict.factor;
    if (!factor) {  // says nothing, such as a single element, if it is right
      mixed |= parameter.verdict.outcome != Outcome::correct;
    } else if (!value) {
      value = factor;
    } else {
      mixed |= !same(*value, *factor, parameter.precision);
    }
  }
  static bool same(double a, double b, const Precision& precision) {
    return std::abs(a - b) <= limit * precision.epsilon * std::abs(a);
  }
  bool known() const { return value && !mixed; }
};

using Factors = std::map<std::string, FactorOfClass>;

std::string text(const Factors& factors) {
  std::ostringstream all;
  for (const auto& [name, factor] : factors)
    if (factor.known()) all << (all.tellp() > 0 ? ", " : "") << name << " " << *factor.value << "x";
  return all.str();
}

// Other explanations of a factor would be about all parameters of the job.
bool may_be_of_a_class(const Verdict& verdict) {
  if (verdict.outcome != Outcome::wrong) return false;
  if (!verdict.best) return true;
  for (const char* id : {"S8", "S9", "S16", "S30"})
    if (verdict.best->signature->id == id) return true;
  return false;
}

}  // namespace

void compare_classes(std::vector<Classified>& parameters) {
  Factors factors;
  for (const Classified& each : parameters) factors[each.class_name].add(each);
  for (Classified& each : parameters) {
    const FactorOfClass& own = factors.at(each.class_name);
    const bool others_differ = std::ranges::any_of(factors, [&](const auto& other) {
      return other.second.known() && own.known() &&
             !FactorOfClass::same(*own.value, *other.second.value, each.precision);
    });
    if (!others_differ || !each.verdict.factor || !may_be_of_a_class(each.verdict)) continue;
    const double error = each.verdict.best ? each.verdict.best->error : 0;
    each.verdict.best = Explained{&signature("S30"), text(factors), error};
    each.verdict.described.reset();
    each.verdict.runner_up.reset();
    each.verdict.same_as_best.clear();
  }
}

}  // namespace weft::verify
