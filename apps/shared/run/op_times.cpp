// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/op_times.h"

#include <utility>

namespace weft {

OpTimes::OpTimes(Tape& tape, Timeline& timeline) : tape_(tape), timeline_(timeline) { tape.observe(*this); }

void OpTimes::arrived(const Var&, const std::string& of, int64_t, Placements) {
  if (!in_backward_.empty()) add(Timeline::Kind::backward, in_backward_);
  in_backward_ = of;
}

void OpTimes::walk_ends(bool) {
  if (!in_backward_.empty()) add(Timeline::Kind::backward, std::exchange(in_backward_, {}));
}

void OpTimes::add(Timeline::Kind kind, const std::string& name) {
  Timeline::Event event;
  event.begin = std::exchange(begin_, seconds_now());
  event.end = begin_;
  event.kind = kind;
  event.call = with_name(event.call, name);
  timeline_.add(event);
}

}  // namespace weft
