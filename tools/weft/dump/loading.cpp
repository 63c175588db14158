// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/dump/loading.h"

#include <algorithm>
#include <functional>

#include "tools/weft/dump/matrix_of.h"

namespace weft::verify {
namespace {

using Read = std::function<Matrix(const StoredTensor&)>;

std::vector<Matrix> read_all(const Stored& of_ranks, const Read& read) {
  std::vector<Matrix> all;
  for (const auto& each : of_ranks) all.push_back(each ? read(*each) : Matrix());
  return all;
}

// A rank without some use, such as a stage of a pipeline, adds nothing to it.
void fill_uses(ParameterEvidence& p) {
  for (auto& [name, by_rank] : p.uses)
    for (size_t r = 0; r < by_rank.size(); ++r) {
      by_rank[r].resize(p.local[r].size());
      for (size_t k = 0; k < by_rank[r].size(); ++k)
        if (by_rank[r][k].rows() == 0) by_rank[r][k] = Matrix::Zero(1, p.local[r][k].size());
    }
}

ParameterEvidence loaded_by(const Read& read, const StoredParameter& parameter) {
  ParameterEvidence p;
  p.name = parameter.name;
  p.precision = parameter.precision;
  p.layout = parameter.layout;
  p.hashes = parameter.hashes;
  p.local.resize(parameter.local.size());
  for (size_t r = 0; r < p.local.size(); ++r) {
    p.local[r].resize(parameter.passes(r));
    for (const auto& [micro_batch, use, tensor] : parameter.local[r]) {
      const Matrix values = read(tensor);
      Matrix& sum = p.local[r][micro_batch];
      sum = sum.rows() == 0 ? values : Matrix(sum + values);
      if (use.empty()) continue;
      auto& by_rank = p.uses[use];
      by_rank.resize(p.local.size());
      by_rank[r].resize(p.local[r].size());
      by_rank[r][micro_batch] = values;
    }
  }
  fill_uses(p);
  p.reduced = read_all(parameter.reduced, read);
  p.previous = read_all(parameter.previous, read);
  p.again = read_all(parameter.again, read);
  return p;
}

std::optional<UpdateEvidence> update_of(const StoredParameter& parameter, const Read& read) {
  if (parameter.update.empty()) return std::nullopt;
  UpdateEvidence update{read_all(parameter.update, read), read_all(parameter.weight, read), {}, parameter.precision};
  for (const auto& of_rank : parameter.update) {
    update.shapes.push_back(of_rank->shape());
    update.precision.lower_to(of_rank->precision());
  }
  return update;
}

// `count` of `extent` indices, spread evenly, in runs that are read at once.
std::vector<Excerpt::Range> spread(int64_t extent, int64_t count) {
  constexpr int64_t run = 16;
  const int64_t runs = std::max<int64_t>(1, count / run);
  std::vector<Excerpt::Range> all;
  for (int64_t i = 0; i < runs; ++i) {
    const int64_t begin = runs == 1 ? 0 : i * (extent - count / runs) / (runs - 1);
    all.push_back({begin, begin + count / runs});
  }
  return all;
}

// How many indices of each of these dimensions make so many elements.
std::vector<int64_t> extents_of(const Shape& shape, const std::vector<int>& dimensions, int64_t elements) {
  std::vector<int64_t> extents(shape.begin(), shape.end());
  const auto size = [&] {
    int64_t product = 1;
    for (const int64_t each : extents) product *= each;
    return product;
  };
  while (size() > elements) {
    const auto longest =
        std::ranges::max_element(dimensions, {}, [&](int d) { return extents[static_cast<size_t>(d)]; });
    if (longest == dimensions.end() || extents[static_cast<size_t>(*longest)] <= 1) break;
    extents[static_cast<size_t>(*longest)] = (extents[static_cast<size_t>(*longest)] + 1) / 2;
  }
  return extents;
}

}  // namespace

Matrix flat(const StoredTensor& stored) {
  const Tensor tensor = stored.read();
  return matrix_of(tensor.reshape({1, tensor.size()}));
}

ParameterEvidence loaded(const StoredParameter& parameter) {
  ParameterEvidence p = loaded_by(flat, parameter);
  p.update = update_of(parameter, flat);
  p.local_shapes = parameter.local_shapes();
  p.reduced_shapes = parameter.reduced_shapes();
  return p;
}

ParameterEvidence loaded(const StoredParameter& parameter, const Excerpt& part) {
  ParameterEvidence p = loaded_by([&](const StoredTensor& stored) { return part.read(stored); }, parameter);
  for (const Shape& shape : parameter.local_shapes()) p.local_shapes.push_back(part.shape(shape));
  for (const Shape& shape : parameter.reduced_shapes()) p.reduced_shapes.push_back(part.shape(shape));
  return p;
}

std::vector<Powers> powers_of(const Stored& of_ranks) {
  constexpr int64_t at_once = 1 << 14;
  std::vector<Powers> all;
  for (const auto& each : of_ranks) {
    const Lazy source = each->lazy(0);
    Powers& powers = all.emplace_back();
    for (int64_t first = 0, size = each->shape().size(); first < size; first += at_once) {
      Eigen::ArrayXd values(std::min(at_once, size - first));
      source->read(first, values.size(), values.data(), nullptr);
      powers.squares += values.square().sum();
      powers.fourth += values.square().square().sum();
    }
  }
  return all;
}

Shape Excerpt::shape(const Shape& whole) const {
  Shape shape = whole;
  for (size_t d = 0; d < of_dimensions.size(); ++d) {
    if (of_dimensions[d].empty()) continue;
    int64_t extent = 0;
    for (const Range& range : of_dimensions[d]) extent += range.end - range.begin;
    shape = shape.with(static_cast<int>(d), extent);
  }
  return shape;
}

Matrix Excerpt::read(const StoredTensor& tensor) const {
  const Shape& shape = tensor.shape();
  const Lazy source = tensor.lazy(0);
  Matrix values(1, this->shape(shape).size());
  double* next = values.data();
  const std::function<void(size_t, int64_t)> visit = [&](size_t d, int64_t index) {
    size_t last = d;  // the last dimension of which not all is read
    for (size_t i = d; i < of_dimensions.size(); ++i)
      if (!of_dimensions[i].empty()) last = i;
    const auto inner = shape.product(static_cast<int>(d) + 1, shape.rank());
    const auto all = std::vector<Range>{{0, shape[static_cast<int>(d)]}};
    for (const Range& range : of_dimensions[d].empty() ? all : of_dimensions[d]) {
      const int64_t begin = (index * shape[static_cast<int>(d)] + range.begin) * inner;
      if (last == d) {
        source->read(begin, (range.end - range.begin) * inner, next, nullptr);
        next += (range.end - range.begin) * inner;
        continue;
      }
      for (int64_t i = range.begin; i < range.end; ++i) visit(d + 1, index * shape[static_cast<int>(d)] + i);
    }
  };
  visit(0, 0);
  return values;
}

std::vector<int> undivided_dimensions(const StoredParameter& parameter, const Layout& layout) {
  std::vector<Shape> shapes = parameter.local_shapes();
  for (const Shape& each : parameter.reduced_shapes()) shapes.push_back(each);
  std::vector<int> dimensions;
  for (int d = 0; d < shapes[0].rank(); ++d) {
    const auto divides = [d](const Placement& each) { return each.flat || each.dimension == d; };
    const auto alike = [&](const Shape& each) { return each.rank() == shapes[0].rank() && each[d] == shapes[0][d]; };
    if (std::ranges::none_of(layout.local, divides) && std::ranges::none_of(layout.reduced, divides) &&
        std::ranges::all_of(shapes, alike))
      dimensions.push_back(d);
  }
  return dimensions;
}

Excerpt spread_excerpt(const Shape& shape, const std::vector<int>& dimensions, int64_t elements) {
  const std::vector<int64_t> extents = extents_of(shape, dimensions, elements);
  Excerpt part{std::vector<std::vector<Excerpt::Range>>(extents.size())};
  for (size_t d = 0; d < extents.size(); ++d)
    if (const int64_t whole = shape[static_cast<int>(d)]; extents[d] < whole)
      part.of_dimensions[d] = spread(whole, extents[d]);
  return part;
}

Excerpt excerpt_around(int64_t element, const Shape& shape, const std::vector<int>& dimensions, int64_t elements) {
  const std::vector<int64_t> extents = extents_of(shape, dimensions, elements);
  Excerpt part{std::vector<std::vector<Excerpt::Range>>(extents.size())};
  for (size_t d = 0; d < extents.size(); ++d) {
    const int64_t whole = shape[static_cast<int>(d)];
    const int64_t index = element / shape.product(static_cast<int>(d) + 1, shape.rank()) % whole;
    const int64_t begin = std::clamp<int64_t>(index - extents[d] / 2, 0, whole - extents[d]);
    if (extents[d] < whole) part.of_dimensions[d] = {{begin, begin + extents[d]}};
  }
  return part;
}

}  // namespace weft::verify
