// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/truth/sample.h"

#include <algorithm>

namespace weft::verify {
namespace {

Sample stacked_sample(const ByTowerAndRank& rows) {
  Sample sample;
  for (const std::vector<Matrix>& of_ranks : rows) sample.towers.push_back(stacked(of_ranks));
  Eigen::Index first = 0;
  for (const Matrix& m : rows[0]) {
    sample.first.push_back(first);
    sample.count.push_back(m.rows());
    first += m.rows();
  }
  sample.weights = Eigen::VectorXd::Constant(first, 1 / static_cast<double>(first));
  return sample;
}

}  // namespace

Matrix stacked(const std::vector<Matrix>& of_ranks) {
  Eigen::Index rows = 0;
  for (const Matrix& m : of_ranks) rows += m.rows();
  Matrix all(rows, of_ranks[0].cols());
  rows = 0;
  for (const Matrix& m : of_ranks) {
    all.middleRows(rows, m.rows()) = m;
    rows += m.rows();
  }
  return all;
}

Sample whole_batch(const ByTowerAndRank& rows) { return stacked_sample(rows); }

Sample mean_of_means(const ByTowerAndRank& rows) {
  Sample sample = stacked_sample(rows);
  for (size_t r = 0; r < sample.count.size(); ++r)
    sample.weights.segment(sample.first[r], sample.count[r])
        .setConstant(1 / static_cast<double>(sample.count.size() * static_cast<size_t>(sample.count[r])));
  return sample;
}

Sample padded(const ByTowerAndRank& rows) {
  Eigen::Index longest = 0;
  for (const Matrix& m : rows[0]) longest = std::max(longest, m.rows());
  ByTowerAndRank longer = rows;
  for (std::vector<Matrix>& of_ranks : longer)
    for (Matrix& m : of_ranks) m.conservativeResizeLike(Matrix::Zero(longest, m.cols()));
  Sample sample = stacked_sample(longer);
  for (size_t r = 0; r < rows[0].size(); ++r) sample.count[r] = rows[0][r].rows();
  return sample;
}

Sample own_rows(const ByTowerAndRank& rows, size_t rank, double weight) {
  ByTowerAndRank own;
  for (const std::vector<Matrix>& of_ranks : rows) own.push_back({of_ranks[rank]});
  Sample sample = stacked_sample(own);
  sample.weights *= weight;
  return sample;
}

}  // namespace weft::verify
