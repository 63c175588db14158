// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the ranks of a job divide the gradient of a parameter, and what the job makes of it: a mesh of ranks, a placement
// of the gradient for each of its axes before and after the reducer, and the way from one to the other.
#include <cstdint>
#include <string>
#include <vector>

#include "tools/weft/dump/lazy_numbers.h"
#include "weft/engine/tensor/shape.h"

namespace weft::verify {

enum class Reducer { mean, sum };

struct Axis {
  std::string name;  // "tp"; empty if the ranks of the job are not divided into axes
  int size;
};

// Ranks in row-major order: the last axis runs fastest.
struct Mesh {
  std::vector<Axis> axes;

  int ranks() const;
  size_t axis(const std::string& name) const;           // Error if there is none
  int coordinate(size_t axis, int rank) const;          // of a rank along an axis
  std::vector<int> along(size_t axis, int rank) const;  // the ranks that differ from this one in this axis only
  std::string over(size_t axis) const;                  // " over tp"; nothing if the axis has no name
  std::string text() const;                             // "dp 3 x tp 2"
};

// Of the gradient of one parameter over the ranks of one axis.
struct Placement {
  enum class Kind {
    replicate,  // every rank has the same
    shard,      // each rank has its slice, along `dimension`; -1: each has its own, which is no slice of a whole
    sum,        // terms, whose sum is the gradient
    mean        // terms, whose mean is the gradient
  };
  Kind kind = Kind::replicate;
  int dimension = -1;
  bool data = false;  // terms of different samples, which the reducer of the job puts together
  bool flat = false;  // slices of the flattened tensor, along the only dimension that is left
  bool pending() const { return kind == Kind::sum || kind == Kind::mean; }
  bool operator==(const Placement&) const = default;
};
std::string text(const Placement& placement);

// Placements of a parameter's gradient, by axis of the mesh: on each rank, and after the reducer.
struct Layout {
  std::vector<Placement> local, reduced;
  std::vector<size_t> averaged;  // axes over which each rank has a sum already, of which the mean is the gradient
  std::string label;             // of parameters that a job treats alike; empty: those of equal placements
};
// Every axis has terms that the reducer puts together; every rank gets the result.
Layout plain_layout(const Mesh& mesh, Reducer reducer);
std::string class_of(const Layout& layout, const Mesh& mesh);
// What is left when every term has been put together.
std::vector<Placement> settled(std::vector<Placement> placements);

// "Shard(0)", "Flat()", "Replicate()", "Partial()", "Partial(avg)", or a letter R, I, V, P. An Error if it is none.
Placement placement_named(const std::string& text);
// SGLang's way to write the placements of a tensor, such as "h[tp] d" and "h[cp:partial] d". Axes that it does not
// mention keep their placement.
void place_dimensions(const std::string& text, const Mesh& mesh, std::vector<Placement>& placements);

// One rank's part of a tensor, flat: (1, n).
struct Block {
  Shape shape;
  Matrix values;
};
// The same, read a range at a time.
struct LazyBlock {
  Shape shape;
  Lazy values;
};

// Of the tensors whose slices have these shapes.
std::vector<Shape> whole_shapes(const Mesh& mesh, const std::vector<Placement>& placements, std::vector<Shape> slices);

LazyBlock unread(Block block);
Matrix values_of(const LazyBlock& block);
LazyBlock slice(const LazyBlock& whole, int dimension, int64_t begin, int64_t end);
LazyBlock joined(const std::vector<LazyBlock>& parts, int dimension);

// What a job does with the gradients of its ranks; and, where it fails to, what else becomes of them.
class Reduction {
 public:
  Reduction(Mesh mesh, Layout layout, std::vector<Shape> reduced_shapes)
      : mesh_(std::move(mesh)), layout_(std::move(layout)), shapes_(std::move(reduced_shapes)) {}

  struct Lapse {
    std::vector<size_t> skipped = {};  // axes along which nothing was put together: each rank keeps its own
    size_t axis = 0;                   // along this one,
    std::vector<size_t> missing = {};  // the terms of these coordinates are missing
  };
  // By rank, from those of all ranks. An Error if their sizes do not fit the layout.
  std::vector<LazyBlock> operator()(std::vector<LazyBlock> of_ranks, const Lapse& lapse) const;
  std::vector<LazyBlock> operator()(std::vector<LazyBlock> of_ranks) const { return (*this)(std::move(of_ranks), {}); }
  std::vector<Block> operator()(std::vector<Block> of_ranks, const Lapse& lapse) const;
  std::vector<Block> operator()(std::vector<Block> of_ranks) const { return (*this)(std::move(of_ranks), Lapse()); }

 private:
  void put_together(std::vector<LazyBlock>& of_ranks, size_t axis, const Lapse& lapse) const;
  void gather(std::vector<LazyBlock>& of_ranks, size_t axis) const;
  void divide(std::vector<LazyBlock>& of_ranks, size_t axis) const;
  void flatten(std::vector<LazyBlock>& of_ranks) const;
  bool divides(size_t axis) const;
  int64_t extent(int rank, int dimension, size_t axis) const;

  Mesh mesh_;
  Layout layout_;
  std::vector<Shape> shapes_;
};

}  // namespace weft::verify
