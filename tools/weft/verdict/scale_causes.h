// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which mistakes make the factors of all parameters what they are.
#include "tools/weft/slopes/slopes.h"
#include "tools/weft/verdict/verdict.h"

namespace weft::verify {

using Causes = std::vector<Explained>;  // those that fit, the most specific one first; none if it is unknown
Causes causes_of_loss(const MeasuredParameter& of, const std::vector<MeasuredParameter>& all, const Dump& dump);
Causes causes_of_gradient(const MeasuredParameter& of, const std::vector<MeasuredParameter>& all, const Dump& dump);
// Mistakes that explain slopes by the terms of the objective, each of which counts by some factor, the same for all
// parameters: what the gradients predict, or what the ranks' losses have.
enum class SlopesOf { gradients, losses };
Causes causes_of_terms(SlopesOf ours, const MeasuredParameter& of, const std::vector<MeasuredParameter>& all,
                       const Dump& dump);

}  // namespace weft::verify
