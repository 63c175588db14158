#include "engine/var.h"

#include "engine/observer.h"

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

Var with_spreads(Var x, Spreads spreads) {
  x.spreads_ = spreads;
  Tape* tape = x.tape();
  if (!tape) return x;
  if (x.tracked()) {
    tape->must_be_usable("with_spreads");
    tape->nodes_[static_cast<size_t>(x.id_)].spreads = spreads;
  }
  if (tape->mode_.spreading)
    for (Tape::Observer* observer : tape->observers_) observer->respread(x);
  return x;
}

Var same_everywhere(Tensor value) { return with_spreads(std::move(value), Spreads(Spread::same)); }

Var derived(Tensor value, const Var& source) {
  return with_spreads(source.tape() ? source.tape()->constant(std::move(value)) : Var(std::move(value)),
                      source.spreads());
}

}  // namespace weft
