// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/dump/layouts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/weft/dump/known_entries.h"
#include "tools/weft/dump/whole_number.h"

namespace weft::verify {
namespace {

using Json = nlohmann::json;

// `placements` holds those that the entry does not mention.
void place(const Json& entry, const Mesh& mesh, std::vector<Placement>& placements) {
  if (entry.is_string()) return place_dimensions(entry.get<std::string>(), mesh, placements);
  if (entry.is_object()) {
    for (const auto& [axis, placement] : entry.items())
      placements[mesh.axis(axis)] = placement_named(placement.get<std::string>());
    return;
  }
  const auto all = entry.get<std::vector<std::string>>();
  require(all.size() == mesh.axes.size(), all.size(), " placements, but the mesh has ", mesh.axes.size(),
          mesh.axes.size() == 1 ? " axis" : " axes");
  for (size_t i = 0; i < all.size(); ++i) placements[i] = placement_named(all[i]);
}

Layout layout_in(const Json& entry, const Mesh& mesh, Reducer reducer) {
  check_entries(entry, "it", {"local", "reduced", "averaged", "class"});
  Layout layout = plain_layout(mesh, reducer);
  if (entry.contains("local")) place(entry.at("local"), mesh, layout.local);
  layout.reduced = settled(layout.local);
  if (entry.contains("reduced")) place(entry.at("reduced"), mesh, layout.reduced);
  const bool flat = std::ranges::any_of(layout.reduced, &Placement::flat);
  for (size_t axis = 0; axis < mesh.axes.size(); ++axis) {
    const Placement &before = layout.local[axis], &after = layout.reduced[axis];
    const auto says = [&](const char* what) {
      return text(before) + " and then " + text(after) + " over '" + mesh.axes[axis].name + "': " + what;
    };
    require(!after.pending(), says("nothing is Partial after the reducer"));
    const bool sliced = before.kind == Placement::Kind::shard, stays = after.kind == Placement::Kind::shard;
    require(!(sliced && stays) || before == after, says("slices stay as they are, or become whole"));
    require(!(sliced && !stays) || before.dimension >= 0, says("V has no dimension along which it becomes whole"));
    require(sliced || !stays || after.dimension >= 0, says("V has no dimension along which it is divided"));
    require(sliced || !stays || after.flat == flat, says("what is flattened has no other dimension to be divided"));
  }
  if (entry.contains("averaged"))
    for (const auto& axis : entry.at("averaged").get<std::vector<std::string>>()) {
      layout.averaged.push_back(mesh.axis(axis));
      require(!layout.local[layout.averaged.back()].pending(), "'", axis,
              "' is averaged already, by its placement Partial(avg), or is not one that ranks have summed over");
    }
  layout.label = entry.value("class", "");
  return layout;
}

}  // namespace

Mesh mesh_in(const Json& manifest) {
  const Json& entry = manifest.at("mesh");
  check_entries(entry, "the mesh", {"names", "shape"});
  const auto names = entry.at("names").get<std::vector<std::string>>();
  const auto sizes = entry.at("shape").get<std::vector<Json>>();
  require(names.size() == sizes.size() && !names.empty(), "the mesh has ", names.size(), " names and ", sizes.size(),
          " sizes: it needs a name and a size for each axis");
  require(std::set(names.begin(), names.end()).size() == names.size(), "two axes of the mesh have the same name");
  constexpr int most_ranks = 1 << 16;
  Mesh mesh;
  for (size_t i = 0; i < names.size(); ++i) {
    require(!names[i].empty(), "an axis of the mesh has an empty name");
    const auto size = static_cast<int>(
        whole_number(sizes[i], 1, most_ranks, "the number of ranks of the axis '" + names[i] + "' of the mesh"));
    require(size <= most_ranks / mesh.ranks(), "the mesh has more than ", most_ranks, " ranks");
    mesh.axes.push_back({names[i], size});
  }
  return mesh;
}

std::map<std::string, Layout> layouts_in(const Json& manifest, const Mesh& mesh, Reducer reducer) {
  std::map<std::string, Layout> layouts;
  for (const auto& [name, entry] : manifest.at("parameters").items()) try {
      layouts[name] = layout_in(entry, mesh, reducer);
    } catch (const Error& error) {
      throw Error("parameter '" + name + "': " + error.what());
    }
  return layouts;
}

}  // namespace weft::verify
