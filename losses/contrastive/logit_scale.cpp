// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/contrastive/logit_scale.h"

#include "weft/engine/kernels/backend.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/maths/maths.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/losses/common/loss_call.h"

namespace weft {

LogitScale::LogitScale(const std::string& name, const Init& init, const Range& range)
    : log_scale(name + ".log_scale", init.full({}, maths::log(range.initial))),
      log_min_(maths::log(range.least)),
      log_max_(maths::log(range.most)) {
  expect_positive("LogitScale: of '" + name + "' ", "initial scale", range.initial);
  expect_positive("LogitScale: of '" + name + "' ", "least scale", range.least);
  expect_positive("LogitScale: of '" + name + "' ", "most scale", range.most);
  register_parameter(log_scale);
}

Var LogitScale::operator()(const Var& features) const { return exp(bind(features, log_scale)); }

// In place, because the parameter may lie in flat memory.
void LogitScale::limit() {
  backend(log_scale.value.device()).unary(Unary::Clamp, {log_min_, log_max_}, log_scale.value, log_scale.value);
}

}  // namespace weft
