// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/common/loss_call.h"

#include <cmath>

namespace weft {

void LossCall::separate() {
  if (!std::exchange(first_, false)) options_.add(", ");
}

LossCall& LossCall::number(const char* option, double value) {
  require(std::isfinite(value), "the ", option, " is ", value, ", but must be finite");
  separate();
  options_.add(option);
  options_.add(" ");
  options_.add(value);
  return *this;
}
LossCall& LossCall::positive(const char* option, double value) {
  expect_positive("", option, value);
  return number(option, value);
}
LossCall& LossCall::not_negative(const char* option, double value) {
  require(value >= 0 && std::isfinite(value), "the ", option, " is ", value, ", but must be finite and not negative");
  return number(option, value);
}
LossCall& LossCall::count(const char* option, int64_t value) { return number(option, static_cast<double>(value)); }

LossCall& LossCall::key(const Random& key) {
  separate();
  options_.add("key ");
  options_.add(static_cast<int64_t>(key.seed));
  options_.add("/");
  options_.add(static_cast<int64_t>(key.stream));
  return *this;
}

LossCall& LossCall::choice(const char* word) {
  separate();
  options_.add(word);
  return *this;
}

LossCall& LossCall::schedule(const KeySchedule& schedule) {
  constexpr const char* names[] = {"gather", "ring", "both ways", "per rank", "chunks"};
  if (schedule.kind == KeySchedule::chunked) return count("chunks of", schedule.chunk);
  return choice(names[static_cast<int>(schedule.kind)]);
}

LossCall::operator Site() const {
  Site site = site_;
  site.options = options_.characters();
  return site;
}

void expect_positive(std::string_view whose, const char* option, double value) {
  require(value > 0 && std::isfinite(value), whose, "the ", option, " is ", value, ", but must be positive and finite");
}

void fail_in(const std::string& place, Error& error) {
  if (!dynamic_cast<const Fault*>(&error)) error.happened_in(place);
  throw;
}

}  // namespace weft
