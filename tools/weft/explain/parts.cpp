// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/explain/parts.h"

#include <algorithm>
#include <cmath>

#include "tools/weft/explain/lists.h"

namespace weft::verify {
namespace {

ParameterEvidence part_of(const ParameterEvidence& parameter, const Range& range, Eigen::Index columns) {
  ParameterEvidence part = parameter;
  const auto cut = [&](Matrix& x) { x = Matrix(x.middleCols(range.begin, range.size())); };
  const auto cut_all = [&](std::vector<std::vector<Matrix>>& by_rank) {
    for (auto& of_rank : by_rank) std::ranges::for_each(of_rank, cut);
  };
  cut_all(part.local);
  for (auto& [name, of_use] : part.uses) cut_all(of_use);
  for (auto* each : {&part.reduced, &part.previous, &part.again}) std::ranges::for_each(*each, cut);
  const Shape shape = of_whole_rows(range, columns) ? Shape{range.size() / columns, columns} : Shape{range.size()};
  std::ranges::fill(part.local_shapes, shape);
  std::ranges::fill(part.reduced_shapes, shape);
  part.hashes.clear();
  return part;
}

// What is wrong with a part, by name or described.
std::optional<Described> cause_of_part(const Given& given, const Range& range) {
  const Verdict found = verdict(part_of(given.parameter, range, given.made.columns[0]), given.dump);
  if (found.outcome != Outcome::wrong || !found.best) return found.described;
  std::vector<std::string> titles = {title(*found.best->signature, found.best->variant)};
  std::ranges::copy(found.same_as_best, std::back_inserter(titles));
  return Described{found.best->signature->name + ", " + listed(titles, " or "), found.best->error,
                   found.best->signature->repair};
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

std::optional<Range> wrong_range(const Given& given) {
  if (!given.whole()) return std::nullopt;
  const auto should = [&](const ParameterEvidence& of) { return should_be(of, given.dump); };
  const std::vector<ExpectedRounding> expected = expected_rounding(given, should);
  const std::vector<Matrix> truth = should(given.parameter);
  Range range{truth[0].size(), 0};
  for (size_t r = 0; r < given.ranks(); ++r) {
    const Matrix difference = (given.made.tensors[r] - truth[r]).cwiseAbs();
    for (Eigen::Index i = 0; i < difference.size(); ++i)
      if (difference(i) > limit * expected[r].of_element(i)) {
        range.begin = std::min(range.begin, i);
        range.end = std::max(range.end, i + 1);
      }
  }
  if (range.size() <= 0) return std::nullopt;
  return range;
}

std::vector<Described> by_part(const Given& given) {
  const auto wrong = wrong_range(given);
  const Eigen::Index elements = given.made.tensors[0].size(), columns = given.made.columns[0];
  if (!wrong || wrong->size() == elements) return {};
  const auto should = [&](const ParameterEvidence& of) { return should_be(of, given.dump); };
  const double alike = share_alike(should(given.parameter)[0], expected_rounding(given, should)[0]);
  constexpr double explanations = 32, unlikely = 0.01;
  if (explanations * std::pow(alike, static_cast<double>(wrong->size())) > unlikely) return {};  // one fits by chance
  Range range = *wrong;
  auto cause = cause_of_part(given, range);
  const Range rows = in_whole_rows(range, columns);
  if (rows.size() != range.size() && rows.size() != elements) {
    const auto of_rows = cause_of_part(given, rows);
    if (of_rows && (!cause || of_rows->text == cause->text)) range = rows, cause = of_rows;
  }
  if (!cause) return {};
  const Eigen::Index all = of_whole_rows(range, columns) ? elements / columns : elements;
  return {
      {range_text(range, columns) + " of " + std::to_string(all) + ": " + cause->text, cause->error, cause->repair}};
}

}  // namespace weft::verify
