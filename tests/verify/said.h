// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "tools/weft/verdict/verdict.h"

namespace weft::verify {

// What is said of a gradient or an update, if it is wrong.
inline std::string said(const Verdict& verdict) {
  if (verdict.outcome == Outcome::correct) return "correct";
  if (verdict.described) return verdict.described->text;
  if (!verdict.best) return "unknown";
  std::string all = title(*verdict.best->signature, verdict.best->variant);
  for (const std::string& same : verdict.same_as_best) all += " or " + same;
  return all;
}

}  // namespace weft::verify
