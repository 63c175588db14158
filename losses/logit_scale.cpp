#include "losses/logit_scale.h"

#include "engine/maths.h"
#include "engine/ops/elementwise.h"
#include "losses/loss_call.h"

namespace weft {

LogitScale::LogitScale(const std::string& name, const Init& init, const Range& range)
    : log_scale(name + ".log_scale", init.full({}, maths::log(range.initial))),
      least_(maths::log(range.least)),
      most_(maths::log(range.most)) {
  expect_positive("LogitScale: of '" + name + "' ", "initial scale", range.initial);
  expect_positive("LogitScale: of '" + name + "' ", "least scale", range.least);
  expect_positive("LogitScale: of '" + name + "' ", "most scale", range.most);
  has(log_scale);
}

Var LogitScale::operator()(const Var& features) const { return exp(use(features, log_scale)); }

// In place: the parameter may lie in flat memory.
void LogitScale::limit() { log_scale.value.copy_from(clamp(log_scale.value, least_, most_).value()); }

}  // namespace weft
