// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/explain/parts.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "tools/weft/explain/lists.h"

namespace weft::verify {
namespace {

// Some rows and columns of a matrix.
struct Tile {
  Range rows, columns;
  Eigen::Index size() const { return rows.size() * columns.size(); }
};

std::function<Matrix(const Matrix&)> cut_of(const Range& range) {
  return [=](const Matrix& x) { return Matrix(x.middleCols(range.begin, range.size())); };
}
std::function<Matrix(const Matrix&)> cut_of(const Tile& tile, Eigen::Index columns) {
  return [=](const Matrix& x) {
    const Matrix table = x.reshaped<Eigen::RowMajor>(x.size() / columns, columns);
    const Matrix part = table.block(tile.rows.begin, tile.columns.begin, tile.rows.size(), tile.columns.size());
    return Matrix(part.reshaped<Eigen::RowMajor>(1, part.size()));
  };
}

ParameterEvidence part_of(const ParameterEvidence& parameter, const std::function<Matrix(const Matrix&)>& part_of_one,
                          const Shape& shape) {
  ParameterEvidence part = parameter;
  const auto cut = [&](Matrix& x) { x = part_of_one(x); };
  const auto cut_all = [&](std::vector<std::vector<Matrix>>& by_rank) {
    for (auto& of_rank : by_rank) std::ranges::for_each(of_rank, cut);
  };
  cut_all(part.local);
  for (auto& [name, of_use] : part.uses) cut_all(of_use);
  for (auto* each : {&part.reduced, &part.previous, &part.again}) std::ranges::for_each(*each, cut);
  std::ranges::fill(part.local_shapes, shape);
  std::ranges::fill(part.reduced_shapes, shape);
  part.hashes.clear();
  return part;
}

// What is wrong with a part, by name or described.
std::optional<Described> cause_of_part(const Given& given, const ParameterEvidence& part) {
  const Verdict found = verdict(part, given.dump);
  if (found.outcome != Outcome::wrong || !found.best) return found.described;
  std::vector<std::string> titles = {title(*found.best->signature, found.best->variant)};
  std::ranges::copy(found.same_as_best, std::back_inserter(titles));
  return Described{found.best->signature->name + ", " + listed(titles, " or "), found.best->error,
                   found.best->signature->repair};
}

std::optional<Described> cause_of_range(const Given& given, const Range& range) {
  const Eigen::Index columns = given.made.columns[0];
  const Shape shape = of_whole_rows(range, columns) ? Shape{range.size() / columns, columns} : Shape{range.size()};
  return cause_of_part(given, part_of(given.parameter, cut_of(range), shape));
}

// A part is a bucket or some rows rather than what is left of them where a mistake happens to be small.
Range in_whole_rows(const Range& range, Eigen::Index columns) {
  return {range.begin / columns * columns, (range.end + columns - 1) / columns * columns};
}

}  // namespace

bool of_whole_rows(const Range& range, Eigen::Index columns) {
  return columns > 1 && range.begin % columns == 0 && range.end % columns == 0;
}

std::string range_text(const Range& range, Eigen::Index columns) {
  const bool rows = of_whole_rows(range, columns);
  const Eigen::Index unit = rows ? columns : 1, first = range.begin / unit, last = range.end / unit - 1;
  const std::string what = rows ? "row" : "element";
  return first == last ? what + " " + std::to_string(first)
                       : what + "s " + std::to_string(first) + " to " + std::to_string(last);
}

// On any rank, in order. Only where each rank has the whole gradient.
static std::vector<Eigen::Index> wrong_elements(const Given& given) {
  if (!given.whole()) return {};
  const auto should = [&](const ParameterEvidence& of) { return should_be(of, given.dump); };
  const std::vector<ExpectedRounding> expected = expected_rounding(given, should);
  const std::vector<Matrix> truth = should(given.parameter);
  std::vector<Eigen::Index> wrong;
  for (Eigen::Index i = 0; i < truth[0].size(); ++i) {
    bool is_wrong = false;
    for (size_t r = 0; r < given.ranks(); ++r)
      is_wrong |= std::abs(given.made.tensors[r](i) - truth[r](i)) > limit * expected[r].of_element(i);
    if (is_wrong) wrong.push_back(i);
  }
  return wrong;
}

std::optional<Range> wrong_range(const Given& given) {
  const std::vector<Eigen::Index> wrong = wrong_elements(given);
  if (wrong.empty()) return std::nullopt;
  return Range{wrong.front(), wrong.back() + 1};
}

// The rows and columns that have wrong elements, if these are not all columns.
static std::optional<Tile> wrong_tile(const Given& given) {
  const Eigen::Index columns = given.made.columns[0];
  const std::vector<Eigen::Index> wrong = wrong_elements(given);
  if (columns < 2 || wrong.empty()) return std::nullopt;
  Tile tile{{wrong.front() / columns, wrong.back() / columns + 1}, {columns, 0}};
  for (const Eigen::Index i : wrong) {
    tile.columns.begin = std::min(tile.columns.begin, i % columns);
    tile.columns.end = std::max(tile.columns.end, i % columns + 1);
  }
  if (tile.columns.size() == columns || tile.rows.size() < 2) return std::nullopt;
  return tile;
}

static std::vector<Described> by_tile(const Given& given, const std::function<bool(Eigen::Index size)>& tells) {
  const auto tile = wrong_tile(given);
  if (!tile || !tells(tile->size())) return {};
  const Eigen::Index columns = given.made.columns[0];
  const auto cause =
      cause_of_part(given, part_of(given.parameter, cut_of(*tile, columns), {tile->rows.size(), tile->columns.size()}));
  if (!cause) return {};
  const auto text = [](const char* what, const Range& range) {
    return std::string(what) + "s " + std::to_string(range.begin) + " to " + std::to_string(range.end - 1);
  };
  return {{text("row", tile->rows) + ", " + text("column", tile->columns) + " of " +
               std::to_string(given.made.tensors[0].size() / columns) + " x " + std::to_string(columns) + ": " +
               cause->text,
           cause->error, cause->repair}};
}

std::vector<Described> by_part(const Given& given) {
  const auto wrong = wrong_range(given);
  const Eigen::Index elements = given.made.tensors[0].size(), columns = given.made.columns[0];
  if (!wrong) return {};
  const auto should = [&](const ParameterEvidence& of) { return should_be(of, given.dump); };
  const double alike = share_alike(should(given.parameter)[0], expected_rounding(given, should)[0]);
  const auto tells = [=](Eigen::Index size) {  // or else one fits by chance
    constexpr double explanations = 32, unlikely = 0.01;
    return explanations * std::pow(alike, static_cast<double>(size)) <= unlikely;
  };
  if (wrong->size() == elements) return by_tile(given, tells);
  if (!tells(wrong->size())) return {};
  Range range = *wrong;
  auto cause = cause_of_range(given, range);
  if (!cause)
    if (auto of_tile = by_tile(given, tells); !of_tile.empty()) return of_tile;
  const Range rows = in_whole_rows(range, columns);
  if (rows.size() != range.size() && rows.size() != elements) {
    const auto of_rows = cause_of_range(given, rows);
    if (of_rows && (!cause || of_rows->text == cause->text)) range = rows, cause = of_rows;
  }
  if (!cause) return {};
  const Eigen::Index all = of_whole_rows(range, columns) ? elements / columns : elements;
  return {
      {range_text(range, columns) + " of " + std::to_string(all) + ": " + cause->text, cause->error, cause->repair}};
}

}  // namespace weft::verify
