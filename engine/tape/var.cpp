// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/tape/var.h"

#include "weft/engine/tape/observer.h"
#include "weft/engine/tensor/origin.h"

namespace weft {

void Var::report_change() const {
  fail({"tape: a ", text(dtype()), " tensor ", text(shape()),
        " was changed in place after it was used on a tape; gradients computed from it would be wrong. "
        "Change it after backward, or record a clone()"});
}

void Var::report_stale(const std::string& who) const {
  fail({who, ", ", text(dtype()), " ", text(shape()),
        ", is of a tape that is gone, or of a checkpoint's second run, which is over; use its value(), or watch that "
        "again"});
}

Var with_placements(Var x, Placements placements) {
  x.placements_ = placements;
  Tape* tape = x.tape();
  if (!tape) return x;
  if (x.tracked()) {
    tape->require_usable("with_placements");
    tape->nodes_[static_cast<size_t>(x.id_)].placements = placements;
  }
  if (tape->mode_.placements)
    for (Tape::Observer* observer : tape->observers_) observer->placement_changed(x);
  return x;
}

Var replicated_constant(Tensor value) { return with_placements(std::move(value), Placements(Placement::constant)); }

Var constant_like(Tensor value, const Var& source) {
  return with_placements(source.tape() ? source.tape()->constant(std::move(value)) : Var(std::move(value)),
                         source.placements());
}

Var detach(const Var& x) {
  Tensor value = x.value();
  Origin::set(value, {});
  return constant_like(std::move(value), x);
}

}  // namespace weft
