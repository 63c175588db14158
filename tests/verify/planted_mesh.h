// SPDX-License-Identifier: Apache-2.0
#pragma once
// Jobs on a mesh of ranks, for the verifier: local gradients of each rank, and what a framework makes of them by real
// collectives over real groups. A wrong framework is one that acts on a wrong layout.
#include <functional>
#include <map>
#include <memory>

#include "tests/support/on_ranks.h"
#include "tools/weft/verdict/verdict.h"

namespace weft::planted {

// The groups of one rank, by axis.
class Groups {
 public:
  Groups(Communicator& world, const verify::Mesh& mesh);
  Communicator& operator[](size_t axis) { return *of_axes_[axis]; }
  int coordinate(size_t axis) const { return of_axes_[axis]->rank().value; }
  Communicator& world;

 private:
  std::vector<std::unique_ptr<Communicator>> of_axes_;
};

// The rows that torch.chunk gives to each of `parts`.
struct Range {
  int64_t begin, end;
};
Range chunk(int64_t extent, int parts, int part);

// What becomes of a local gradient by this layout.
Tensor reduced(const verify::Mesh& mesh, const verify::Layout& layout, Groups& groups, const Tensor& local);

// A rank's gradient of a parameter of this shape: random, other terms on each rank, slices and copies as placed.
Tensor local_gradient(const verify::Mesh& mesh, const verify::Layout& layout, const Shape& whole, int rank, int use,
                      DType dtype);

using Framework = std::function<Tensor(Groups&, const std::vector<Tensor>& local)>;  // by micro-batch
struct Planted {
  verify::Mesh mesh;
  verify::Layout layout;
  Shape whole;
  DType dtype = DType::f64;
  int passes = 2;
  int seed = 0;
  std::vector<std::string> uses = {};
};
verify::ParameterEvidence parameter(const std::string& name, const Planted& planted, const Framework& framework);
verify::ParameterEvidence correct_parameter(const std::string& name, const Planted& planted);

verify::Dump dump_of(const verify::Mesh& mesh, std::vector<verify::ParameterEvidence> parameters);

verify::Matrix flat(const Tensor& x);
Tensor sum_of(const std::vector<Tensor>& all);

// "Partial(avg) Shard(0)", and after the reducer the same or else this.
verify::Layout layout_of(const verify::Mesh& mesh, const std::string& local, const std::string& reduced = "");

// Writes a dump as a framework would: a file for each rank, and a manifest with `more` entries.
void write_dump(const std::filesystem::path& folder, const verify::Dump& dump, DType dtype,
                const std::string& more = "");

}  // namespace weft::planted
