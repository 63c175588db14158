// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/checks/debug_finite.h"

#include "weft/collectives/transport.h"
#include "weft/engine/tensor/finite.h"

namespace weft {

DebugFinite::DebugFinite(Tape& tape, const Communicator& comm) : tape_(tape), rank_(comm.global(comm.rank())) {
  tape.observe(*this);
}

void DebugFinite::check(const Tensor& value, const std::string& what) {
  if (!first_.empty()) return;
  const std::string place = what_is_not_finite(value);
  if (!place.empty()) first_ = what + ", " + text(value.dtype()) + " " + text(value.shape()) + ": " + place;
}

void DebugFinite::watched(const Var& leaf, const Parameter* parameter) {
  check(leaf.value(), parameter ? "parameter '" + parameter->name + "'" : "leaf");
}

void DebugFinite::computed(const Var& result, const Op& op, std::span<const Var* const>) {
  const int64_t node = tape_.place_of(result);
  check(result.value(), std::string(op.name) + (node < 0 ? "" : ", node " + text(node)));
}

void DebugFinite::arrived(const Var& gradient, const std::string& of, int64_t, Placements) {
  const std::string place = what_is_not_finite(gradient.value());
  if (place.empty() || !of.starts_with("parameter ")) return check(gradient.value(), "the gradient of " + of);
  throw Fault(exit_codes::non_finite, "debug: on rank " + text(rank_) + " the gradient of " + of +
                                          " is not finite; the first that is not is " +
                                          (first_.empty() ? "this, " + place : first_));
}

}  // namespace weft
