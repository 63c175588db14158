#pragma once
// How the ranks of a group hold a parameter, said once by the layer that owns it. Training follows it: over which ranks
// gradients are summed, norms, trust ratios, steps that need the whole matrix, checkpoints.
//
//   weight.placement = divided(group, 1, extents);  each rank has its slice along axis 1, and that slice's gradient
//   bias.placement = invariant(group);              every rank has all of it, and all of its gradient
//
// Without a placement every rank has all of a parameter and a part of its gradient, which is the sum over all ranks.
#include <memory>

#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

struct GroupPlacement {
  Communicator& group;
  int axis;      // along which the ranks divide it, in their order; -1: they do not
  Rows extents;  // of each rank along that axis

  bool divided() const { return axis >= 0; }
  Spread spread() const { return divided() ? Spread::varying : Spread::invariant; }
};
std::shared_ptr<const GroupPlacement> divided(Communicator& group, int axis, Rows extents);
std::shared_ptr<const GroupPlacement> invariant(Communicator& group);

bool is_divided(const Parameter& parameter);
Shape whole_shape(const Parameter& parameter);  // of what the ranks hold together
// Whether all ranks of a group are among those of another, or none but this one is; Error if it is neither.
bool is_within(const Communicator& group, const Communicator& comm);

// The whole of a parameter, or of what has its shape, from this rank's slice, on every rank; and the slice of a whole.
Tensor gathered(const Tensor& mine, const GroupPlacement& placement, Site site = Site::here());
Tensor own_slice(const Tensor& whole, const GroupPlacement& placement);

// The parameter as a Var beside x, as use() gives it, spread over its group as it is placed there.
Var use_placed(const Var& x, const Parameter& parameter);

}  // namespace weft
