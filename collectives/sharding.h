// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the ranks of a group hold a parameter. The layer that owns the parameter sets this once, and training follows it:
// the ranks over which gradients are summed, norms, trust ratios, steps that need the whole matrix, checkpoints.
//
//   weight.sharding = divided(group, 1, extents);  each rank has its slice along axis 1, and that slice's gradient
//   bias.sharding = invariant(group);              every rank has the whole parameter, and its whole gradient
//
// Without a sharding every rank has the whole parameter and one part of its gradient, which is the sum over all ranks.
#include <memory>

#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

struct Sharding {
  Communicator& group;
  int axis;      // the axis along which the parameter is divided, in rank order; -1: it is not divided
  Rows extents;  // of each rank's slice along that axis

  bool divided() const { return axis >= 0; }
  Placement placement() const { return divided() ? Placement::varying : Placement::invariant; }
};
std::shared_ptr<const Sharding> divided(Communicator& group, int axis, Rows extents);
std::shared_ptr<const Sharding> invariant(Communicator& group);

bool is_divided(const Parameter& parameter);
Shape whole_shape(const Parameter& parameter);  // of the slices of all ranks together
// True if all ranks of `group` are in `comm`, false if at most this one is. Anything else is an Error.
bool is_within(const Communicator& group, const Communicator& comm);

// `gathered` returns, on every rank, the whole of a parameter or of another tensor of its shape, from the slices of all
// ranks. `own_slice` returns this rank's slice of a whole.
Tensor gathered(const Tensor& mine, const Sharding& sharding, Site site = Site::here());
Tensor own_slice(const Tensor& whole, const Sharding& sharding);

// The parameter as a Var on the tape of x, from bind(), with the placement of its sharding.
Var bind_sharded(const Var& x, const Parameter& parameter);

}  // namespace weft
