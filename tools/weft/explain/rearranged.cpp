// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/explain/rearranged.h"

#include <algorithm>
#include <numeric>

#include "tools/weft/explain/candidate.h"
#include "tools/weft/explain/lists.h"
#include "tools/weft/explain/parts.h"

namespace weft::verify {
namespace {

// Elements that are those of another place of the right gradient, or zero.
struct Run {
  Range to;
  Eigen::Index from;  // -1: zero
  bool operator==(const Run& other) const { return to.begin == other.to.begin && from == other.from; }
};
using Runs = std::vector<Run>;

// The longest runs of which a gradient consists; none if they are many, or so short that they may fit by chance.
std::optional<Runs> runs_of(const Matrix& made, const Matrix& truth, const ExpectedRounding& expected) {
  constexpr Eigen::Index fewest_of_each = 6;  // on average
  constexpr double unlikely = 0.01;
  const double alike = share_alike(truth, expected);
  const Eigen::Index elements = made.size();
  const auto fits = [&](Eigen::Index to, Eigen::Index from) {
    if (from < 0) return made(to) == 0;
    return std::abs(made(to) - truth(from)) <= limit * expected.of_element(from);
  };
  Runs runs;
  for (Eigen::Index to = 0; to < elements;) {
    Run longest{{to, to}, 0};
    const auto try_from = [&](Eigen::Index from) {
      Eigen::Index length = 0;
      while (to + length < elements && from + length < elements && fits(to + length, from < 0 ? from : from + length))
        ++length;
      if (length > longest.to.size()) longest = {{to, to + length}, from};
    };
    try_from(to);
    for (Eigen::Index from = -1; from < elements; ++from) try_from(from);
    if (longest.to.size() == 0) return std::nullopt;
    const double by_chance = static_cast<double>(elements) * std::pow(alike, static_cast<double>(longest.to.size()));
    if (longest.from >= 0 && longest.from != to && by_chance > unlikely) return std::nullopt;
    runs.push_back(longest);
    if (std::ssize(runs) * fewest_of_each > elements) return std::nullopt;
    to = longest.to.end;
  }
  return runs;
}

Matrix rearranged(const Matrix& truth, const Runs& runs) {
  Matrix result = Matrix::Zero(1, truth.size());
  for (const Run& run : runs)
    if (run.from >= 0) result.middleCols(run.to.begin, run.to.size()) = truth.middleCols(run.from, run.to.size());
  return result;
}

std::string text_of(const Runs& runs, Eigen::Index columns) {
  constexpr size_t most = 4;
  std::vector<std::string> all;
  for (const auto& [to, from] : runs) {
    if (from == to.begin) continue;
    const Range there{from, from + to.size()};
    const bool one = to.size() == 1 || (of_whole_rows(to, columns) && to.size() == columns);
    all.push_back(range_text(to, columns) + (from < 0 ? (one ? " is zero" : " are zero")
                                                      : (one ? " has" : " have") + std::string(" what belongs to ") +
                                                            range_text(there, columns)));
  }
  if (all.size() > most) return std::to_string(all.size()) + " blocks have what belongs to others, " + all[0];
  return listed(all);
}

// Of the right gradient of each rank.
Given::Predicted of_each(const Given& given, std::function<Matrix(const Matrix&)> change) {
  return [&given, change = std::move(change)](const ParameterEvidence& of) {
    std::vector<Matrix> all = should_be(of, given.dump);
    for (Matrix& each : all) each = change(each);
    return all;
  };
}

void add_turned(std::vector<Described>& all, const Given& given) {
  const Eigen::Index columns = std::max<Eigen::Index>(given.made.columns[0], 1),
                     rows = given.made.tensors[0].size() / columns;
  const auto in_rows = [=](const Matrix& x) { return Matrix(x.reshaped<Eigen::RowMajor>(rows, columns)); };
  const auto flat = [](const Matrix& x) { return Matrix(x.reshaped<Eigen::RowMajor>(1, x.size())); };
  const auto add = [&](const char* text, std::function<Matrix(const Matrix&)> change) {
    add_if_right(all, given, {text, of_each(given, std::move(change))});
  };
  if (rows > 1)
    add("the rows are in reverse order", [=](const Matrix& x) { return flat(in_rows(x).colwise().reverse()); });
  if (columns > 1) add("the elements are in reverse order", [](const Matrix& x) { return Matrix(x.reverse()); });
  if (rows == 1 || columns == 1) return;
  add("the columns are in reverse order", [=](const Matrix& x) { return flat(in_rows(x).rowwise().reverse()); });
  add("transposed: rows and columns have changed places",
      [=](const Matrix& x) { return flat(in_rows(x).transpose()); });
}

void add_runs(std::vector<Described>& all, const Given& given) {
  const auto should = [&](const ParameterEvidence& of) { return should_be(of, given.dump); };
  const std::vector<ExpectedRounding> expected = expected_rounding(given, should);
  const std::vector<Matrix> truth = should(given.parameter);
  std::vector<Runs> of_ranks;
  std::vector<std::string> texts;
  for (size_t r = 0; r < given.ranks(); ++r) {
    const auto runs = runs_of(given.made.tensors[r], truth[r], expected[r]);
    if (!runs) return;
    of_ranks.push_back(*runs);
    const std::string text = text_of(*runs, given.made.columns[r]);
    texts.push_back(text.empty() ? "all is in its place" : text);
  }
  const auto predicted = [&](const ParameterEvidence& of) {
    std::vector<Matrix> result = should(of);
    for (size_t r = 0; r < result.size(); ++r) result[r] = rearranged(result[r], of_ranks[r]);
    return result;
  };
  add_if_right(all, given, {told_by_rank(texts), predicted});
}

}  // namespace

std::vector<Described> by_rearrangement(const Given& given) {
  std::vector<Described> all;
  if (given.whole()) add_turned(all, given);
  if (given.whole() && all.empty()) add_runs(all, given);
  return all;
}

}  // namespace weft::verify
