#include "collectives/group_placement.h"

#include "collectives/spreads.h"
#include "engine/nn/module.h"
#include "engine/ops/shape_ops.h"

namespace weft {

std::shared_ptr<const GroupPlacement> divided(Communicator& group, int axis, Rows extents) {
  require(axis >= 0 && static_cast<int>(extents.size()) == group.size(), "divided: ", extents.size(),
          " extents along axis ", axis, " for ", group.size(), " ranks");
  return std::make_shared<const GroupPlacement>(GroupPlacement{group, axis, std::move(extents)});
}

std::shared_ptr<const GroupPlacement> invariant(Communicator& group) {
  return std::make_shared<const GroupPlacement>(GroupPlacement{group, -1, {}});
}

bool is_divided(const Parameter& parameter) { return parameter.placement && parameter.placement->divided(); }

Shape whole_shape(const Parameter& parameter) {
  const Shape& mine = parameter.value.shape();
  if (!is_divided(parameter)) return mine;
  const auto& [group, axis, extents] = *parameter.placement;
  require(axis < mine.rank() && mine[axis] == extents[static_cast<size_t>(group.rank().value)],
          "placement: ", parameter.name, " is ", mine, ", which is not ",
          extents[static_cast<size_t>(group.rank().value)], " along axis ", axis);
  return mine.with(axis, total_rows(extents));
}

bool is_within(const Communicator& group, const Communicator& comm) {
  int inside = 0;
  for (int r = 0; r < group.size(); ++r)
    for (int s = 0; s < comm.size(); ++s) inside += group.global({r}) == comm.global({s});
  const bool apart = inside <= 1;  // 0: a rank by itself has numbers of its own
  require(apart || inside == group.size(), "placement: of the ranks of ", group.description(), ", ", inside,
          " are among those of ", comm.description(), "; all of them should be, or one");
  return !apart;
}

Tensor gathered(const Tensor& mine, const GroupPlacement& placement, Site site) {
  const Tensor rows = swap_axes(mine, 0, placement.axis).value();
  return swap_axes(placement.group.all_gather_v(rows, placement.extents, site), 0, placement.axis).value();
}

Tensor own_slice(const Tensor& whole, const GroupPlacement& placement) {
  const int rank = placement.group.rank().value;
  const int64_t begin = rows_before(placement.extents, rank);
  return slice(whole, placement.axis, begin, begin + placement.extents[static_cast<size_t>(rank)]).value();
}

Var use_placed(const Var& x, const Parameter& parameter) {
  const Var used = use(x, parameter);
  if (!used.defined() || !parameter.placement) return used;
  return spread_as(used, parameter.placement->group, parameter.placement->spread());
}

}  // namespace weft
