// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/explain/slices.h"

#include <algorithm>
#include <numeric>

#include "tools/weft/explain/candidate.h"

namespace weft::verify {
namespace {

// The slices of ranks.
class Slices {
 public:
  explicit Slices(const Given& given) : given_(given), shapes_(given.parameter.shapes_of_reduced()) {
    const Layout layout = layout_of(given.parameter, given.dump);
    if (layout.local.size() != 1 || !layout.local[0].pending() || layout.reduced[0].kind != Placement::Kind::shard)
      return;
    dimension_ = layout.reduced[0].dimension;
    unit_ = layout.local[0].kind == Placement::Kind::mean ? 1.0 / given.dump.ranks : 1;
    for (const Shape& shape : shapes_) begins_.push_back(begins_.back() + shape[dimension_]);
  }
  bool divided() const { return begins_.size() > 1; }

  void add_all(std::vector<Described>& all) const {
    const auto ranks = static_cast<int64_t>(shapes_.size());
    for (int64_t by = 1; by < ranks; ++by)
      add_if_right(all, given_,
                   {"each rank has the slice of the rank " + std::to_string(by) + " after it",
                    of_ranks([=](int64_t r) { return (r + by) % ranks; })});
    add_if_right(all, given_,
                 {"ranks have the slices in reverse order", of_ranks([=](int64_t r) { return ranks - 1 - r; })});
    add_if_right(all, given_, {"every rank has the first slice", of_ranks([](int64_t) { return 0; })});
    add_if_right(all, given_,
                 {"sliced before the sum: each rank adds its own slice",
                  [this](const ParameterEvidence& of) { return sliced_before(of); }});
    for (int other = 0; other < whole(given_.parameter).shape.rank(); ++other)
      if (other != dimension_)
        add_if_right(all, given_,
                     {"divided along dimension " + std::to_string(other) + " instead of " + std::to_string(dimension_),
                      [this, other](const ParameterEvidence& of) { return along(of, other); }});
    constexpr int64_t most = 16;
    for (int64_t by = -most; by <= most; ++by)
      if (by != 0)
        add_if_right(all, given_,
                     {"the slices of all ranks are shifted by " + std::to_string(by),
                      [this, by](const ParameterEvidence& of) { return shifted(of, by); }});
  }

 private:
  Block whole(const ParameterEvidence& of) const {
    Block sum = of.local_block(0, Matrix::Zero(1, of.local[0][0].size()));
    for (const auto& of_rank : of.local)
      for (const Matrix& term : of_rank) sum.values += unit_ * term;
    if (layout_of(of, given_.dump).reduced[0].flat) sum.shape = {sum.values.size()};
    return sum;
  }
  Matrix slice_of(const Block& whole, int64_t rank) const {
    const auto r = static_cast<size_t>(rank);
    return values_of(slice(unread(whole), dimension_, begins_[r], begins_[r + 1]));
  }
  Given::Predicted of_ranks(std::function<int64_t(int64_t)> whose) const {
    return [this, whose = std::move(whose)](const ParameterEvidence& of) {
      const Block all = whole(of);
      std::vector<Matrix> result;
      for (int64_t r = 0; r < std::ssize(shapes_); ++r) result.push_back(slice_of(all, whose(r)));
      return result;
    };
  }
  std::vector<Matrix> sliced_before(const ParameterEvidence& of) const {
    Matrix sum = Matrix::Zero(1, shapes_[0].size());
    for (size_t r = 0; r < shapes_.size(); ++r) {
      Block own = whole(of);
      own.values = unit_ * std::accumulate(of.local[r].begin() + 1, of.local[r].end(), of.local[r][0]);
      const Matrix part = slice_of(own, static_cast<int64_t>(r));
      if (part.size() != sum.size()) return std::vector<Matrix>(shapes_.size());
      sum += part;
    }
    return std::vector<Matrix>(shapes_.size(), sum);
  }
  std::vector<Matrix> along(const ParameterEvidence& of, int other) const {
    const LazyBlock all = unread(whole(of));
    const auto ranks = std::ssize(shapes_);
    std::vector<Matrix> result;
    for (int64_t r = 0; r < ranks; ++r)
      result.push_back(values_of(slice(all, other, all.shape[other] * r / ranks, all.shape[other] * (r + 1) / ranks)));
    return result;
  }
  std::vector<Matrix> shifted(const ParameterEvidence& of, int64_t by) const {
    const LazyBlock all = unread(whole(of));
    const int64_t extent = all.shape[dimension_];
    std::vector<Matrix> result;
    for (size_t r = 0; r < shapes_.size(); ++r) {
      std::vector<LazyBlock> rows;
      for (int64_t i = begins_[r]; i < begins_[r + 1]; ++i) {
        const int64_t from = std::clamp<int64_t>(i + by, 0, extent - 1);
        rows.push_back(slice(all, dimension_, from, from + 1));
      }
      result.push_back(rows.empty() ? Matrix(1, 0) : values_of(joined(rows, dimension_)));
    }
    return result;
  }

  const Given& given_;
  std::vector<Shape> shapes_;
  std::vector<int64_t> begins_ = {0};
  int dimension_ = 0;
  double unit_ = 1;
};

// Of a gradient that several axes divide: where the tiles of ranks are, if not where they should be.
void add_tiles(std::vector<Described>& all, const Given& given) {
  const Mesh mesh = mesh_of(given.dump);
  const Layout layout = layout_of(given.parameter, given.dump);
  std::vector<size_t> axes;
  for (size_t axis = 0; axis < mesh.axes.size(); ++axis)
    if (layout.local[axis].pending() && layout.reduced[axis].kind == Placement::Kind::shard) axes.push_back(axis);
  if (axes.size() < 2) return;
  const auto add = [&](const std::string& text, const std::function<int(int)>& whose) {
    add_if_right(all, given, {text, [&given, &mesh, whose](const ParameterEvidence& of) {
                                const std::vector<Matrix> tiles = should_be(of, given.dump);
                                std::vector<Matrix> result;
                                for (int r = 0; r < mesh.ranks(); ++r)
                                  result.push_back(tiles[static_cast<size_t>(whose(r))]);
                                return result;
                              }});
  };
  for (const size_t axis : axes) {
    const int size = mesh.axes[axis].size;
    const auto along = [&mesh, axis](int r, int coordinate) {
      return mesh.along(axis, r)[static_cast<size_t>(coordinate)];
    };
    for (int by = 1; by < size; ++by)
      add("each rank has the slice of the rank " + std::to_string(by) + " after it" + mesh.over(axis),
          [=, &mesh](int r) { return along(r, (mesh.coordinate(axis, r) + by) % size); });
    if (size > 2)
      add("ranks have the slices in reverse order" + mesh.over(axis),
          [=, &mesh](int r) { return along(r, size - 1 - mesh.coordinate(axis, r)); });
    add("every rank has the first slice" + mesh.over(axis), [=](int r) { return along(r, 0); });
  }
  const size_t first = axes[0], second = axes[1];
  if (axes.size() == 2 && mesh.axes[first].size == mesh.axes[second].size)
    add("the slices of " + mesh.axes[first].name + " and " + mesh.axes[second].name + " have changed places",
        [=, &mesh](int r) {
          const int row = mesh.along(first, r)[static_cast<size_t>(mesh.coordinate(second, r))];
          return mesh.along(second, row)[static_cast<size_t>(mesh.coordinate(first, r))];
        });
}

}  // namespace

std::vector<Described> by_slices(const Given& given) {
  std::vector<Described> all;
  if (const Slices slices(given); slices.divided()) slices.add_all(all);
  add_tiles(all, given);
  return all;
}

}  // namespace weft::verify
