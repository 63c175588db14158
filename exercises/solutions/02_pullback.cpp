// SPDX-License-Identifier: Apache-2.0
// Exercise 2. At 1 and 4 they are b / 2c = 1 for a and a / 2c = 0.25 for b. That of a grows without bound as a goes to
// zero. b and c stay Vars in the pullbacks: their value() would have no derivative.
#include "exercises/functions.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/tape/record.h"

namespace weft::exercises {
namespace {

const Op geometric_mean_op{"geometric_mean", {}};  // the operation's name on the tape

}  // namespace

Var geometric_mean(const Var& a, const Var& b) {
  const Tensor value = sqrt(Var(a.value()) * Var(b.value())).value();
  return record(geometric_mean_op, value, from(a, [=](const Var& g, const Var& c) { return g * b / (2 * c); }),
                from(b, [=](const Var& g, const Var& c) { return g * a / (2 * c); }));
}

}  // namespace weft::exercises
