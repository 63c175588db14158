// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a manifest says of the mesh of ranks, and of the placements of parameters on it (docs/manifest.md).
#include <map>
#include <nlohmann/json_fwd.hpp>

#include "tools/weft/dump/mesh.h"

namespace weft::verify {

Mesh mesh_in(const nlohmann::json& manifest);  // of the entry "mesh"
// By parameter, of the entry "parameters". Errors name the parameter.
std::map<std::string, Layout> layouts_in(const nlohmann::json& manifest, const Mesh& mesh, Reducer reducer);

}  // namespace weft::verify
