// SPDX-License-Identifier: Apache-2.0
#pragma once
// By how much the gradient of each rank and micro-batch counts in what the reducer made of them, fitted to the dump.
#include <optional>

#include "tools/weft/explain/formulas.h"
#include "tools/weft/explain/given.h"
#include "tools/weft/explain/terms.h"

namespace weft::verify {

// Of so many ranks; what the fit cannot tell apart is one number.
Weights weights_of(const Fitted& fitted, Eigen::Index ranks);
// "the gradients of ranks 0 to 1 weigh 1 and 1/2 times what they should: all tokens / (ranks x own tokens)"
std::string weights_text(const Weights& weights, const Dump& dump);

// Every gradient that a rank has is the right one times a number.
std::vector<Described> by_one_factor(const Given& given);
// Every gradient that a rank has is a weighted sum of those of the uses of a parameter, such as a tied one.
std::vector<Described> by_uses(const Given& given);
// Every gradient that a rank has is a weighted sum of those of all ranks and micro-batches.
std::vector<Described> by_weights(const Given& given);

}  // namespace weft::verify
