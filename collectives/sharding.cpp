// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/sharding.h"

#include "weft/collectives/placement_conversions.h"
#include "weft/engine/nn/module.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {

std::shared_ptr<const Sharding> divided(Communicator& group, int axis, Rows extents) {
  require(axis >= 0 && static_cast<int>(extents.size()) == group.size(), "divided: ", extents.size(),
          " extents along axis ", axis, " for ", group.size(), " ranks");
  return std::make_shared<const Sharding>(Sharding{group, axis, std::move(extents)});
}

std::shared_ptr<const Sharding> invariant(Communicator& group) {
  return std::make_shared<const Sharding>(Sharding{group, -1, {}});
}

bool is_divided(const Parameter& parameter) { return parameter.sharding && parameter.sharding->divided(); }

Shape whole_shape(const Parameter& parameter) {
  const Shape& mine = parameter.value.shape();
  if (!is_divided(parameter)) return mine;
  const auto& [group, axis, extents] = *parameter.sharding;
  require(axis < mine.rank() && mine[axis] == extents[static_cast<size_t>(group.rank().value)],
          "sharding: ", parameter.name, " is ", mine, ", which is not ",
          extents[static_cast<size_t>(group.rank().value)], " along axis ", axis);
  return mine.with(axis, total_rows(extents));
}

bool is_within(const Communicator& group, const Communicator& comm) {
  int inside = 0;
  for (int r = 0; r < group.size(); ++r)
    for (int s = 0; s < comm.size(); ++s) inside += group.global({r}) == comm.global({s});
  const bool apart = inside <= 1;  // 0 if `group` is a single rank with a job of its own
  require(apart || inside == group.size(), "sharding: of the ranks of ", group.description(), ", ", inside,
          " are among those of ", comm.description(), "; all of them should be, or one");
  return !apart;
}

Tensor gathered(const Tensor& mine, const Sharding& sharding, Site site) {
  const Tensor rows = swap_axes(mine, 0, sharding.axis).value();
  return swap_axes(sharding.group.all_gather_v(rows, sharding.extents, site), 0, sharding.axis).value();
}

Tensor own_slice(const Tensor& whole, const Sharding& sharding) {
  const int rank = sharding.group.rank().value;
  const int64_t begin = rows_before(sharding.extents, rank);
  return slice(whole, sharding.axis, begin, begin + sharding.extents[static_cast<size_t>(rank)]).value();
}

Var bind_sharded(const Var& x, const Parameter& parameter) {
  const Var used = bind(x, parameter);
  if (!used.defined() || !parameter.sharding) return used;
  return with_placement(used, parameter.sharding->group, parameter.sharding->placement());
}

}  // namespace weft
