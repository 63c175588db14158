// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/explain/given.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace weft::verify {
namespace {

std::vector<Matrix> reduced(const ParameterEvidence& parameter, const Dump& dump, const std::vector<Matrix>& of_ranks) {
  const Reduction reduction(mesh_of(dump), layout_of(parameter, dump), parameter.shapes_of_reduced());
  return parameter.through(reduction, of_ranks);
}

}  // namespace

bool Given::whole() const {
  for (size_t r = 0; r < ranks(); ++r)
    if (made.tensors[r].size() != made.tensors[0].size() || parameter.local[r][0].size() != made.tensors[0].size())
      return false;
  return true;
}

std::vector<Matrix> should_be(const ParameterEvidence& parameter, const Dump& dump) {
  std::vector<Matrix> sums;
  for (const auto& of_rank : parameter.local)
    sums.push_back(std::accumulate(of_rank.begin() + 1, of_rank.end(), of_rank[0]));
  return reduced(parameter, dump, sums);
}

std::vector<Matrix> contributions(const ParameterEvidence& parameter, const Dump& dump, size_t to_rank) {
  std::vector<Matrix> all;
  const double unit = dump.reducer == Reducer::mean ? 1.0 / dump.ranks : 1;
  for (size_t r = 0; r < parameter.local.size(); ++r)
    for (const Matrix& term : parameter.local[r]) {
      if (!parameter.layout) {
        all.push_back(unit * term);
        continue;
      }
      std::vector<Matrix> alone;
      for (const auto& of_rank : parameter.local) alone.push_back(Matrix::Zero(1, of_rank[0].size()));
      alone[r] = term;
      all.push_back(reduced(parameter, dump, alone)[to_rank]);
    }
  return all;
}

std::vector<ExpectedRounding> expected_rounding(const Given& given, const Given::Predicted& predicted) {
  constexpr int repetitions = 4;
  const double epsilon = given.parameter.precision.epsilon;
  const std::vector<Matrix> exact = predicted(given.parameter);
  std::vector<ExpectedRounding> all;
  for (size_t r = 0; r < given.ranks(); ++r) all.emplace_back(exact[r], given.made.columns[r], epsilon);
  for (int i = 0; i < repetitions; ++i) {
    const Rounding rounding{epsilon, Rounding::Generator(static_cast<uint64_t>(i))};
    ParameterEvidence inexact = given.parameter;
    const auto move = [&](std::vector<std::vector<Matrix>>& by_rank) {
      for (auto& of_rank : by_rank)
        for (Matrix& term : of_rank) rounding.apply(term);
    };
    move(inexact.local);
    for (auto& [name, of_use] : inexact.uses) move(of_use);
    const std::vector<Matrix> moved = predicted(inexact);
    for (size_t r = 0; r < given.ranks(); ++r) all[r].add(exact[r], moved[r]);
  }
  for (size_t r = 0; r < given.ranks(); ++r) all[r].finish(exact[r]);
  return all;
}

double Given::error(const Predicted& predicted) const {
  const std::vector<ExpectedRounding> expected = expected_rounding(*this, predicted);
  const std::vector<Matrix> exact = predicted(parameter);
  double worst = 0;
  for (size_t r = 0; r < ranks(); ++r) worst = std::max(worst, expected[r].error(made.tensors[r], exact[r]));
  return worst;
}

double share_alike(const Matrix& truth, const ExpectedRounding& expected) {
  constexpr Eigen::Index enough = 64;
  const Eigen::Index step = std::max<Eigen::Index>(1, truth.size() / enough);
  double alike = 0, pairs = 0;
  for (Eigen::Index i = 0; i < truth.size(); i += step)
    for (Eigen::Index j = 0; j < truth.size(); j += step)
      if (i != j) {
        ++pairs;
        alike += std::abs(truth(i) - truth(j)) <= limit * expected.of_element(j);
      }
  return (alike + 1) / (pairs + 1);
}

}  // namespace weft::verify
