// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/explain/explain.h"

#include <algorithm>

#include "tools/weft/explain/mixed.h"
#include "tools/weft/explain/parts.h"
#include "tools/weft/explain/rearranged.h"
#include "tools/weft/explain/rounded.h"
#include "tools/weft/explain/slices.h"
#include "tools/weft/explain/weights.h"
#include "tools/weft/verdict/unexplained.h"

namespace weft::verify {
namespace {

bool finite(const ParameterEvidence& parameter) {
  const auto all = [](const std::vector<Matrix>& tensors) {
    return std::ranges::all_of(tensors, [](const Matrix& m) { return m.allFinite(); });
  };
  return all(parameter.reduced) && std::ranges::all_of(parameter.local, all);
}

Described together(const std::vector<Described>& all) {
  Described result = all[0];
  for (size_t i = 1; i < all.size(); ++i) {
    result.text += "; or: " + all[i].text;
    result.error = std::max(result.error, all[i].error);
    if (all[i].repair != all[0].repair) result.repair += "; or: " + all[i].repair;
  }
  return result;
}

std::optional<Described> described(const ParameterEvidence& parameter, const Dump& dump) {
  using Fit = std::vector<Described> (*)(const Given&);
  static const std::vector<std::vector<Fit>> from_simplest = {
      {by_one_factor}, {by_uses, by_weights}, {by_part, by_rearrangement, by_slices, by_other_parameter}};
  const Given given(parameter, dump);
  for (const auto& fits : from_simplest) {
    std::vector<Described> all;
    for (const Fit fit : fits) std::ranges::move(fit(given), std::back_inserter(all));
    if (!all.empty()) return together(all);
  }
  return std::nullopt;
}

}  // namespace

void explain(Verdict& verdict, const ParameterEvidence& parameter, const Dump& dump) {
  if (finite(parameter)) verdict.best = rounded_once(parameter, dump);
  if (!verdict.best) explain_without_formula(verdict, parameter, dump);
  if (verdict.best || !finite(parameter)) return;
  verdict.described = described(parameter, dump);
  if (verdict.described) return;
  const Given given(parameter, dump);
  const auto range = wrong_range(given);
  if (range && range->size() < given.made.tensors[0].size())
    verdict.remarks.push_back(range_text(*range, given.made.columns[0]) + " alone: all before and after are right");
}

}  // namespace weft::verify
