// SPDX-License-Identifier: Apache-2.0
#include "tests/verify/planted_mesh.h"

#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>

#include "weft/collectives/run_ranks.h"
#include "weft/data/files/safetensors.h"

namespace weft::planted {

using Kind = verify::Placement::Kind;

Groups::Groups(Communicator& world, const verify::Mesh& mesh) : world(world) {
  for (size_t axis = 0; axis < mesh.axes.size(); ++axis)
    of_axes_.push_back(world.split(mesh.along(axis, number(world))[0]));
}

Range chunk(int64_t extent, int parts, int part) {
  const int64_t length = (extent + parts - 1) / parts;
  return {std::min(extent, part * length), std::min(extent, (part + 1) * length)};
}

Tensor reduced(const verify::Mesh& mesh, const verify::Layout& layout, Groups& groups, const Tensor& local) {
  Var x = local;
  for (size_t axis = 0; axis < mesh.axes.size(); ++axis) {
    const verify::Placement &before = layout.local[axis], &after = layout.reduced[axis];
    if (before.pending()) x = groups[axis].all_reduce(x.value());
    if (before.kind == Kind::mean) x = x / static_cast<double>(mesh.axes[axis].size);
    if (before.kind == Kind::shard && after.kind == Kind::replicate) {
      const Tensor mine = swap_axes(x, 0, before.dimension).value().clone();
      x = swap_axes(groups[axis].all_gather_v(mine, groups[axis].rows_of(mine.shape()[0])), 0, before.dimension);
    }
  }
  for (size_t axis = 0; axis < mesh.axes.size(); ++axis) {
    const int dimension = layout.reduced[axis].dimension;
    if (layout.local[axis].kind == Kind::shard || layout.reduced[axis].kind != Kind::shard) continue;
    if (layout.reduced[axis].flat) x = reshape(x, {x.value().size()});
    const Range mine = chunk(x.shape()[dimension], mesh.axes[axis].size, groups.coordinate(axis));
    x = slice(x, dimension, mine.begin, mine.end);
  }
  for (const size_t axis : layout.averaged) x = x / static_cast<double>(mesh.axes[axis].size);
  return x.value().clone();
}

Tensor local_gradient(const verify::Mesh& mesh, const verify::Layout& layout, const Shape& whole, int rank, int use,
                      DType dtype) {
  Shape shape = whole;
  int owner = rank;
  for (size_t axis = 0; axis < mesh.axes.size(); ++axis) {
    const verify::Placement& placement = layout.local[axis];
    if (placement.kind == Kind::replicate) owner = mesh.along(axis, owner)[0];
    if (placement.kind != Kind::shard || placement.dimension < 0) continue;
    if (placement.flat) shape = {shape.size()};
    const Range mine = chunk(shape[placement.dimension], mesh.axes[axis].size, mesh.coordinate(axis, rank));
    shape = shape.with(placement.dimension, mine.end - mine.begin);
  }
  return data_of(owner, shape, use, dtype);
}

verify::Dump dump_of(const verify::Mesh& mesh, std::vector<verify::ParameterEvidence> parameters) {
  verify::Dump dump;
  dump.mesh = mesh;
  dump.ranks = mesh.ranks();
  dump.parameters = std::move(parameters);
  return dump;
}

verify::Matrix flat(const Tensor& x) {
  const std::vector<double> values = x.to(DType::f64).values();
  return Eigen::Map<const verify::Matrix>(values.data(), 1, static_cast<Eigen::Index>(values.size()));
}

Tensor sum_of(const std::vector<Tensor>& all) {
  return total(0, static_cast<int>(all.size()), [&](int i) { return Var(all[static_cast<size_t>(i)]); }).value();
}

verify::ParameterEvidence parameter(const std::string& name, const Planted& planted, const Framework& framework) {
  const auto ranks = static_cast<size_t>(planted.mesh.ranks());
  verify::ParameterEvidence p;
  p.name = name;
  p.layout = planted.layout;
  p.precision = planted.dtype == DType::f32    ? verify::Precision{"f32", 0x1p-23}
                : planted.dtype == DType::bf16 ? verify::Precision{"bf16", 0x1p-8}
                                               : verify::Precision();
  p.local.resize(ranks), p.reduced.resize(ranks), p.local_shapes.resize(ranks), p.reduced_shapes.resize(ranks);
  for (const std::string& use : planted.uses) p.uses[use].resize(ranks);
  std::mutex mutex;
  run_ranks(planted.mesh.ranks(), [&](Communicator& world) {
    Groups groups(world, planted.mesh);
    const auto r = static_cast<size_t>(number(world));
    const int uses = std::max(1, static_cast<int>(planted.uses.size()));
    std::vector<Tensor> local;  // by micro-batch, and use
    for (int k = 0; k < planted.passes * uses; ++k)
      local.push_back(local_gradient(planted.mesh, planted.layout, planted.whole, number(world),
                                     planted.seed * 10 + k + 1, planted.dtype));
    const Tensor result = framework(groups, local);
    const std::lock_guard lock(mutex);
    for (int k = 0; k < planted.passes; ++k) {
      const auto first = local.begin() + k * uses;
      p.local[r].push_back(verify::Matrix::Zero(1, local[0].size()));
      for (int i = 0; i < uses; ++i) p.local[r].back() += flat(first[i]);
      for (size_t i = 0; i < planted.uses.size(); ++i)
        p.uses[planted.uses[i]][r].push_back(flat(first[static_cast<int64_t>(i)]));
    }
    p.local_shapes[r] = local[0].shape();
    p.reduced[r] = flat(result);
    p.reduced_shapes[r] = result.shape();
  });
  return p;
}

verify::ParameterEvidence correct_parameter(const std::string& name, const Planted& planted) {
  return parameter(name, planted, [&](Groups& groups, const std::vector<Tensor>& local) {
    return reduced(planted.mesh, planted.layout, groups, sum_of(local));
  });
}

static std::vector<verify::Placement> placements_in(const std::string& text) {
  std::vector<verify::Placement> all;
  std::istringstream words(text);
  for (std::string word; words >> word;) all.push_back(verify::placement_named(word));
  return all;
}

verify::Layout layout_of(const verify::Mesh& mesh, const std::string& local, const std::string& reduced) {
  verify::Layout layout;
  layout.local = placements_in(local);
  layout.reduced = reduced.empty() ? verify::settled(layout.local) : placements_in(reduced);
  require(layout.local.size() == mesh.axes.size(), "a placement for each axis");
  return layout;
}

static Tensor tensor(const verify::Matrix& values, const Shape& shape, DType dtype) {
  Tensor x(shape, DType::f64);
  std::copy(values.data(), values.data() + values.size(), x.mutate<double>());
  return x.to(dtype);
}

static nlohmann::json names_of(const std::vector<verify::Placement>& placements) {
  nlohmann::json names = nlohmann::json::array();
  for (const verify::Placement& each : placements) names.push_back(verify::text(each));
  return names;
}

void write_dump(const std::filesystem::path& folder, const verify::Dump& dump, DType dtype, const std::string& more) {
  nlohmann::json manifest = nlohmann::json::parse("{" + more + "}");
  manifest["weft_manifest"] = 1;
  for (const verify::Axis& axis : verify::mesh_of(dump).axes) {
    manifest["mesh"]["names"].push_back(axis.name);
    manifest["mesh"]["shape"].push_back(axis.size);
  }
  for (const verify::ParameterEvidence& p : dump.parameters) {
    auto& entry = manifest["parameters"][p.name];
    entry = {{"local", names_of(p.layout->local)}, {"reduced", names_of(p.layout->reduced)}};
    if (!p.layout->label.empty()) entry["class"] = p.layout->label;
    for (const size_t axis : p.layout->averaged) entry["averaged"].push_back(dump.mesh->axes[axis].name);
  }
  std::ofstream(folder / "manifest.json") << manifest;
  for (size_t r = 0; r < static_cast<size_t>(dump.ranks); ++r) {
    std::vector<NamedTensor> tensors;
    for (const verify::ParameterEvidence& p : dump.parameters) {
      const auto add_local = [&](const std::string& name, const auto& by_rank) {
        for (size_t k = 0; k < by_rank[r].size(); ++k)
          tensors.push_back(
              {"local/" + name + "/" + std::to_string(k), tensor(by_rank[r][k], p.local_shapes[r], dtype)});
      };
      if (p.uses.empty()) add_local(p.name, p.local);
      for (const auto& [use, by_rank] : p.uses) add_local(p.name + "@" + use, by_rank);
      tensors.push_back({"reduced/" + p.name, tensor(p.reduced[r], p.reduced_shapes[r], dtype)});
      if (!p.again.empty()) tensors.push_back({"again/" + p.name, tensor(p.again[r], p.reduced_shapes[r], dtype)});
    }
    if (dump.norm) tensors.push_back({"gradient_norm", Tensor::full({}, dump.norm->by_rank[r], dtype)});
    write_safetensors(folder / ("rank" + std::to_string(r) + ".safetensors"), tensors, {});
  }
}

}  // namespace weft::planted
