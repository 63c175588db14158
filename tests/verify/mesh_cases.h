// SPDX-License-Identifier: Apache-2.0
#pragma once
// Layers whose ranks are a mesh, computed by the engine over real groups: the gradients of each rank, and those of one
// process that has everything. Ranks along the axis dp have different samples; the other axis divides the layer.
#include <functional>
#include <string>
#include <vector>

#include "tests/verify/planted_mesh.h"

namespace weft::planted {

struct NamedGradient {
  std::string name;    // "table", or of one of its uses "table@head"
  std::string layout;  // "Partial(avg) Shard(0)"
  Tensor gradient = {};
  bool averaged = false;  // over the last axis
};

struct MeshCase {
  const char* name;
  verify::Mesh mesh;
  // Of one micro-batch: on this rank, where the reducer will average over dp; and of one process.
  std::function<std::vector<NamedGradient>(Groups&, int micro_batch)> on_rank;
  std::function<std::vector<NamedGradient>(const verify::Mesh&, int micro_batch)> alone;
};
// What a rank's share of the loss is multiplied by, for a reducer that averages.
double share_of_all(Groups& groups);

const std::vector<MeshCase>& mesh_cases();
std::vector<MeshCase> attention_cases();  // those of them
const MeshCase& mesh_case(const std::string& name);

}  // namespace weft::planted
