// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/dump/evidence.h"

#include <algorithm>
#include <cmath>

namespace weft::verify {

bool UpdateEvidence::is_whole(const std::vector<Shape>& wholes) const {
  for (size_t r = 0; r < wholes.size(); ++r)
    if (made[r].size() != wholes[r].size()) return false;
  return true;
}

bool ParameterEvidence::has_local() const {
  return std::ranges::any_of(local, [](const auto& of_rank) { return !of_rank.empty(); }) ||
         (stored && stored->has_local());
}

Block ParameterEvidence::local_block(size_t rank, Matrix values) const {
  const Shape shape = local_shapes.empty() ? Shape{values.size()} : local_shapes[rank];
  return {shape, std::move(values)};
}

std::vector<Shape> ParameterEvidence::shapes_of_reduced() const {
  if (!reduced_shapes.empty()) return reduced_shapes;
  std::vector<Shape> shapes;
  for (const Matrix& m : reduced) shapes.push_back({m.size()});
  return shapes;
}

std::vector<Matrix> ParameterEvidence::through(const Reduction& reduction, const std::vector<Matrix>& of_ranks,
                                               const Reduction::Lapse& lapse) const {
  std::vector<Block> blocks;
  for (size_t r = 0; r < of_ranks.size(); ++r) blocks.push_back(local_block(r, of_ranks[r]));
  std::vector<Matrix> result;
  for (Block& each : reduction(std::move(blocks), lapse)) result.push_back(std::move(each.values));
  return result;
}

double predictions_of_element(int ranks) { return 16 + (ranks > 8 ? ranks : std::exp2(ranks)); }

Mesh mesh_of(const Dump& dump) { return dump.mesh.value_or(Mesh{{{"", dump.ranks}}}); }

Layout layout_of(const std::optional<Layout>& layout, const Dump& dump) {
  return layout ? *layout : plain_layout(mesh_of(dump), dump.reducer);
}
Layout layout_of(const ParameterEvidence& parameter, const Dump& dump) { return layout_of(parameter.layout, dump); }

}  // namespace weft::verify
