// SPDX-License-Identifier: Apache-2.0
// The manifest of a dump of four ranks, whose tensors can have every role, and of a truth: what it says of them is
// kept.
#include "tests/fuzz/memory_file.h"
#include "tests/support/scratch_folder.h"
#include "tools/weft/dump/evidence.h"
#include "weft/data/files/safetensors.h"

namespace weft::fuzz {
namespace {

constexpr int ranks = 4;

// Rank r has one row of features more than the one before, and two rows of a slice or one.
std::vector<NamedTensor> tensors_of(int r) {
  auto random = [&, id = uint64_t{0}](const Shape& shape) mutable {
    return Tensor::uniform(shape, {static_cast<uint64_t>(r), ++id}, -1, 1);
  };
  const auto same = [](const Shape& shape) { return Tensor::uniform(shape, {100}, -1, 1, DType::f64); };
  std::vector<NamedTensor> all = {{"scale", same({})}, {"scale.grad", random({})}, {"norm", same({})}};
  for (const char* tower : {"images", "images.grad", "texts", "texts.grad"}) all.push_back({tower, random({1 + r, 3})});
  for (const char* name : {"local/w/0", "local/w/1", "reduced/w", "earlier", "repeated"})
    all.push_back({name, random({2, 4})});
  for (const char* name : {"local/tied@head", "local/tied@embedding", "reduced/tied"})
    all.push_back({name, random({4})});
  for (const char* name : {"slice", "slice.reduced"}) all.push_back({name, random({2 - r % 2, 3})});
  for (const char* name : {"x", "x.grad", "y.grad"}) all.push_back({name, random({2, 3})});
  for (const char* name : {"rest", "epsilon"}) all.push_back({name, same({})});
  all.push_back({"along", same({3, 8})});
  all.push_back({"moved", same({3, 4})});
  return all;
}

std::vector<NamedTensor> truth() {
  std::vector<NamedTensor> all;
  for (const char* name : {"truth/w", "inexact/w/0", "inexact/w/1"})
    all.push_back({name, Tensor::uniform({2, 4}, {100}, -1, 1)});
  for (const char* name : {"truth/tied", "inexact/tied/0"}) all.push_back({name, Tensor::uniform({4}, {100}, -1, 1)});
  return all;
}

std::vector<NamedTensor> mended() {
  return {{"mended/w", Tensor::uniform({2, 4}, {100}, -1, 1)}, {"mended/tied", Tensor::uniform({4}, {100}, -1, 1)}};
}

void check_layout(const verify::Layout& layout, const verify::Mesh& mesh) {
  must(layout.local.size() == mesh.axes.size() && layout.reduced.size() == mesh.axes.size(),
       "there is a placement for each axis");
  for (const auto& placements : {layout.local, layout.reduced})
    for (const verify::Placement& each : placements) {
      const verify::Placement again = verify::placement_named(verify::text(each));
      must(again.kind == each.kind && again.dimension == each.dimension && again.flat == each.flat,
           "a placement is read as written");
    }
  for (const verify::Placement& each : layout.reduced) must(!each.pending(), "nothing is left to be put together");
}

}  // namespace

void read(std::string_view bytes) {
  static const MemoryFile place;
  static const ScratchFolder folder;
  static const bool written = [] {
    for (int r = 0; r < ranks; ++r)
      write_safetensors(folder / ("rank" + std::to_string(r) + ".safetensors"), tensors_of(r), {});
    write_safetensors(folder / "truth.safetensors", truth(), {});
    write_safetensors(folder / "mended.safetensors", mended(), {});
    return symlink(place.path().c_str(), (folder / "manifest.json").c_str()) == 0;
  }();
  must(written, "the folder has a manifest");
  place.hold(bytes);

  const verify::Dump dump = verify::read_dump(folder.path);
  const verify::Mesh mesh = verify::mesh_of(dump);
  must(mesh.ranks() == dump.ranks, "every rank has its place in the mesh");
  must(dump.micro_batches >= 1, "there is a micro-batch");
  must(dump.rows.empty() || std::ssize(dump.rows) == dump.ranks || (dump.step && std::ssize(dump.rows) < dump.ranks),
       "every rank has its number of rows, or shares them");
  for (const int64_t rows : dump.rows) must(rows >= 0, "no rank has less than no rows");
  if (dump.step)
    for (const verify::StoredParameter& p : dump.step->parameters)
      must(p.truth && !p.inexact.empty() && (dump.step->mended.empty() || !p.mended.empty()),
           "every parameter of a step has its truth");
  for (const verify::ParameterEvidence& p : dump.parameters) check_layout(verify::layout_of(p, dump), mesh);
}

}  // namespace weft::fuzz
