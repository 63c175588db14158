// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/dump/mesh.h"

#include <algorithm>
#include <charconv>
#include <sstream>

namespace weft::verify {
namespace {

using Kind = Placement::Kind;

Kind kind_of_partial(const std::string& how, const std::string& text) {
  if (how.empty() || how == "sum") return Kind::sum;
  require(how == "avg" || how == "mean", "'", text, "' is no placement of a gradient: it is Partial() or Partial(avg)");
  return Kind::mean;
}

int dimension_in(const std::string& inside, const std::string& text) {
  const std::string number = inside.starts_with("dim=") ? inside.substr(4) : inside;
  int dimension = -1;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), dimension);
  require(error == std::errc() && end == number.data() + number.size() && dimension >= 0, "'", text,
          "' has no dimension: write Shard(0) for the first");
  return dimension;
}

}  // namespace

int Mesh::ranks() const {
  int count = 1;
  for (const Axis& axis : axes) count *= axis.size;
  return count;
}

size_t Mesh::axis(const std::string& name) const {
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i].name == name) return i;
  throw Error("the mesh has no axis '" + name + "': it is " + text());
}

static int stride(const Mesh& mesh, size_t axis) {
  int stride = 1;
  for (size_t i = axis + 1; i < mesh.axes.size(); ++i) stride *= mesh.axes[i].size;
  return stride;
}

int Mesh::coordinate(size_t axis, int rank) const { return rank / stride(*this, axis) % axes[axis].size; }

std::vector<int> Mesh::along(size_t axis, int rank) const {
  const int step = stride(*this, axis), first = rank - coordinate(axis, rank) * step;
  std::vector<int> ranks;
  for (int i = 0; i < axes[axis].size; ++i) ranks.push_back(first + i * step);
  return ranks;
}

std::string Mesh::over(size_t axis) const { return axes[axis].name.empty() ? "" : " over " + axes[axis].name; }

std::string Mesh::text() const {
  std::string all;
  for (const Axis& axis : axes) all += (all.empty() ? "" : " x ") + axis.name + " " + std::to_string(axis.size);
  return all;
}

std::string text(const Placement& placement) {
  switch (placement.kind) {
    case Kind::replicate: return "Replicate()";
    case Kind::shard:
      if (placement.flat) return "Flat()";
      return placement.dimension < 0 ? "V" : "Shard(" + std::to_string(placement.dimension) + ")";
    case Kind::sum: return "Partial()";
    default: return "Partial(avg)";
  }
}

Layout plain_layout(const Mesh& mesh, Reducer reducer) {
  Layout layout;
  layout.local.assign(mesh.axes.size(), {reducer == Reducer::mean ? Kind::mean : Kind::sum, -1, true});
  layout.reduced = settled(layout.local);
  return layout;
}

std::vector<Placement> settled(std::vector<Placement> placements) {
  for (Placement& each : placements)
    if (each.pending()) each = Placement();
  return placements;
}

std::string class_of(const Layout& layout, const Mesh& mesh) {
  if (!layout.label.empty()) return layout.label;
  std::string all;
  for (size_t i = 0; i < layout.local.size(); ++i)
    if (!layout.local[i].data) all += (all.empty() ? "" : ", ") + text(layout.local[i]) + mesh.over(i);
  return all.empty() ? "data parallel" : all;
}

Placement placement_named(const std::string& text) {
  if (text == "R" || text == "I") return {};
  if (text == "V") return {Kind::shard};
  if (text == "P") return {Kind::sum};
  const size_t open = text.find('(');
  const bool closed = open != std::string::npos && text.ends_with(')');
  const std::string name = text.substr(0, open), inside = closed ? text.substr(open + 1, text.size() - open - 2) : "";
  if (closed && name == "Replicate" && inside.empty()) return {};
  if (closed && name == "Flat" && inside.empty()) return {Kind::shard, 0, false, true};
  if (closed && name == "Shard") return {Kind::shard, dimension_in(inside, text)};
  if (closed && name == "Partial") {
    const Kind kind = kind_of_partial(inside, text);
    return {kind, -1, kind == Kind::mean};
  }
  throw Error("'" + text +
              "' is no placement: write Shard(0), Flat(), Replicate(), Partial(), Partial(avg), or R, I, V, P");
}

void place_dimensions(const std::string& text, const Mesh& mesh, std::vector<Placement>& placements) {
  std::istringstream dimensions(text);
  int index = 0;
  for (std::string dimension; dimensions >> dimension; ++index) {
    const size_t open = dimension.find('[');
    if (open == std::string::npos) continue;
    require(dimension.ends_with(']'), "'", text, "': a '[' is not closed in '", dimension, "'");
    std::istringstream modifiers(dimension.substr(open + 1, dimension.size() - open - 2));
    for (std::string modifier; std::getline(modifiers, modifier, ',');) {
      const size_t colon = modifier.find(':');
      const std::string qualifier = colon == std::string::npos ? "" : modifier.substr(colon + 1);
      require(qualifier.empty() || qualifier == "partial", "'", text, "': the only qualifier is partial, not '",
              qualifier, "'");
      placements[mesh.axis(modifier.substr(0, colon))] =
          qualifier.empty() ? Placement{Kind::shard, index} : Placement{Kind::sum};
    }
  }
}

LazyBlock slice(const LazyBlock& whole, int dimension, int64_t begin, int64_t end) {
  const int64_t inner = whole.shape.product(dimension + 1, whole.shape.rank());
  return {whole.shape.with(dimension, end - begin),
          alternating({{whole.values, (end - begin) * inner, whole.shape[dimension] * inner, begin * inner}})};
}

LazyBlock joined(const std::vector<LazyBlock>& parts, int dimension) {
  int64_t extent = 0;
  std::vector<Runs> runs;
  for (const LazyBlock& part : parts) {
    const int64_t length = part.shape.product(dimension, part.shape.rank());
    extent += part.shape[dimension];
    runs.push_back({part.values, length, length, 0});
  }
  return {parts[0].shape.with(dimension, extent), alternating(std::move(runs))};
}

std::vector<Shape> whole_shapes(const Mesh& mesh, const std::vector<Placement>& placements, std::vector<Shape> slices) {
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    const int dimension = placements[axis].dimension;
    if (placements[axis].kind != Placement::Kind::shard || dimension < 0) continue;
    const std::vector<Shape> before = slices;
    for (int r = 0; r < mesh.ranks(); ++r) {
      int64_t extent = 0;
      for (const int q : mesh.along(axis, r)) extent += before[static_cast<size_t>(q)][dimension];
      slices[static_cast<size_t>(r)] = slices[static_cast<size_t>(r)].with(dimension, extent);
    }
  }
  return slices;
}

LazyBlock unread(Block block) { return {block.shape, lazy(std::move(block.values))}; }

Matrix values_of(const LazyBlock& block) {
  Matrix values(1, block.shape.size());
  block.values->read(0, values.size(), values.data(), nullptr);
  return values;
}

std::vector<Block> Reduction::operator()(std::vector<Block> of_ranks, const Lapse& lapse) const {
  std::vector<LazyBlock> all;
  for (Block& each : of_ranks) all.push_back(unread(std::move(each)));
  std::vector<Block> result;
  for (const LazyBlock& each : (*this)(std::move(all), lapse)) result.push_back({each.shape, values_of(each)});
  return result;
}

std::vector<LazyBlock> Reduction::operator()(std::vector<LazyBlock> of_ranks, const Lapse& lapse) const {
  for (size_t axis = 0; axis < mesh_.axes.size(); ++axis) {
    if (layout_.local[axis].kind != Kind::shard) put_together(of_ranks, axis, lapse);
    if (layout_.local[axis].kind == Kind::shard && layout_.reduced[axis].kind == Kind::replicate)
      gather(of_ranks, axis);
  }
  flatten(of_ranks);
  for (size_t axis = 0; axis < mesh_.axes.size(); ++axis)
    if (divides(axis)) divide(of_ranks, axis);
  double divisor = 1;
  for (const size_t axis : layout_.averaged) divisor *= mesh_.axes[axis].size;
  for (size_t r = 0; r < of_ranks.size(); ++r) {
    if (divisor != 1) of_ranks[r].values = lazy_sum({of_ranks[r].values}, 1, divisor);
    require(of_ranks[r].shape.size() == shapes_[r].size(), "is ", shapes_[r], " on rank ", r,
            ", but by its placements ", of_ranks[r].shape);
  }
  return of_ranks;
}

bool Reduction::divides(size_t axis) const {
  return layout_.local[axis].kind != Kind::shard && layout_.reduced[axis].kind == Kind::shard;
}

// Equal copies are their mean.
void Reduction::put_together(std::vector<LazyBlock>& of_ranks, size_t axis, const Lapse& lapse) const {
  if (std::ranges::find(lapse.skipped, axis) != lapse.skipped.end()) return;
  const double unit = layout_.local[axis].kind == Kind::sum ? 1 : 1.0 / mesh_.axes[axis].size;
  for (int first = 0; first < mesh_.ranks(); ++first) {
    if (mesh_.coordinate(axis, first) != 0) continue;
    const std::vector<int> ranks = mesh_.along(axis, first);
    const LazyBlock& one = of_ranks[static_cast<size_t>(first)];
    std::vector<Lazy> terms;
    for (size_t i = 0; i < ranks.size(); ++i) {
      const LazyBlock& term = of_ranks[static_cast<size_t>(ranks[i])];
      require(term.shape.size() == one.shape.size(), "is ", term.shape, " on rank ", ranks[i], " and ", one.shape,
              " on rank ", first, ", but is ", text(layout_.local[axis]), mesh_.over(axis));
      if (lapse.axis != axis || std::ranges::find(lapse.missing, i) == lapse.missing.end())
        terms.push_back(term.values);
    }
    const Lazy sum = lazy_sum(std::move(terms), unit);
    for (const int r : ranks) of_ranks[static_cast<size_t>(r)].values = sum;
  }
}

void Reduction::gather(std::vector<LazyBlock>& of_ranks, size_t axis) const {
  const std::vector<LazyBlock> before = of_ranks;
  for (int r = 0; r < mesh_.ranks(); ++r) {
    std::vector<LazyBlock> parts;
    for (const int q : mesh_.along(axis, r)) parts.push_back(before[static_cast<size_t>(q)]);
    of_ranks[static_cast<size_t>(r)] = joined(parts, layout_.local[axis].dimension);
  }
}

void Reduction::flatten(std::vector<LazyBlock>& of_ranks) const {
  if (std::ranges::none_of(layout_.reduced, &Placement::flat)) return;
  for (LazyBlock& each : of_ranks) each.shape = {each.shape.size()};
}

// What a rank has before the axes from `axis` on divide it.
int64_t Reduction::extent(int rank, int dimension, size_t axis) const {
  if (axis == mesh_.axes.size()) return shapes_[static_cast<size_t>(rank)][dimension];
  if (!divides(axis) || layout_.reduced[axis].dimension != dimension) return extent(rank, dimension, axis + 1);
  int64_t sum = 0;
  for (const int q : mesh_.along(axis, rank)) sum += extent(q, dimension, axis + 1);
  return sum;
}

// By the extents that the ranks have: evenly, as torch.chunk does, or otherwise.
void Reduction::divide(std::vector<LazyBlock>& of_ranks, size_t axis) const {
  const int dimension = layout_.reduced[axis].dimension;
  for (int r = 0; r < mesh_.ranks(); ++r) {
    LazyBlock& mine = of_ranks[static_cast<size_t>(r)];
    int64_t begin = 0, end = 0, all = 0;
    for (const int q : mesh_.along(axis, r)) {
      const int64_t length = extent(q, dimension, axis + 1);
      if (q == r) begin = all, end = all + length;
      all += length;
    }
    require(all == mine.shape[dimension], "is divided", mesh_.over(axis), " into ", all, " along dimension ", dimension,
            ", but there are ", mine.shape[dimension]);
    mine = slice(mine, dimension, begin, end);
  }
}

}  // namespace weft::verify
