// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/explain/updates.h"

#include <algorithm>

#include "tools/weft/explain/explain.h"
#include "tools/weft/explain/formulas.h"
#include "tools/weft/explain/fraction.h"
#include "tools/weft/explain/lists.h"
#include "tools/weft/explain/rounded.h"

namespace weft::verify {
namespace {

// "the update is 1/8 times what it should be: 1 / ranks"; `shown`: the smallest factor, less one, that would show.
Described by_factor(double factor, double shown, const Dump& dump) {
  constexpr size_t most = 3;
  const Matrix value = Matrix::Constant(1, 1, factor), known_to = shown * value.cwiseAbs();
  const std::vector<std::string> names = formulas({value, known_to}, dump);
  const std::string text =
      "the update is " + fraction_text(as_fraction(factor, known_to(0))) + " times what it should be";
  return {names.empty() || names.size() > most ? text : text + ": " + listed(names, ", or "), 0,
          "compare the rate, and what it is multiplied or divided by"};
}

// A gradient that would have made the update, as the reducer's.
ParameterEvidence as_gradient(const ParameterEvidence& parameter, const Dump& dump) {
  ParameterEvidence gradient = parameter;
  gradient.reduced = parameter.update->made;
  for (Matrix& each : gradient.reduced) each /= -dump.optimizer->rate;
  gradient.precision = parameter.update->precision;
  return gradient;
}

}  // namespace

void explain_update(Verdict& verdict, const ParameterEvidence& parameter, const Dump& dump,
                    const std::vector<Matrix>& truth) {
  const UpdateEvidence& update = *parameter.update;
  const OptimizerRule& rule = *dump.optimizer;
  constexpr double amplified = 64;  // what the iteration of Muon makes of roundings
  const double off_by = limit * update.precision.epsilon * (rule.needs_whole() ? amplified : 1);
  if (const auto lower = stored_in_lower(update.made, truth, update.precision.epsilon, off_by)) {
    verdict.best = Explained{&signature("S28"), "in " + *lower + ", where the update is stored", 0};
    verdict.runner_up.reset();
  } else if (verdict.factor) {
    verdict.described = by_factor(*verdict.factor, verdict.resolution->factor, dump);
  } else if (rule.kind == OptimizerRule::Kind::sgd && rule.clip == 0 && update.weight.empty() &&
             std::ranges::equal(update.made, parameter.reduced, {}, &Matrix::size, &Matrix::size)) {
    explain(verdict, as_gradient(parameter, dump), dump);
  }
}

}  // namespace weft::verify
