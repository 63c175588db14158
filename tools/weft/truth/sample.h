// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rows that a statistic is taken of: those of all ranks, or what a mistake makes of them.
#include <Eigen/Core>
#include <vector>

namespace weft::verify {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ByTowerAndRank = std::vector<std::vector<Matrix>>;  // (b_r, D) each

// The rows of all ranks, in rank order.
Matrix stacked(const std::vector<Matrix>& of_ranks);

struct Sample {
  std::vector<Matrix> towers;              // (n, D) each
  Eigen::VectorXd weights;                 // (n), of each row in every mean
  std::vector<Eigen::Index> first, count;  // where the rows of each rank are

  Matrix of_rank(const Matrix& rows, size_t rank) const { return rows.middleRows(first[rank], count[rank]); }
};

Sample whole_batch(const ByTowerAndRank& rows);    // each row weighs 1 / B
Sample mean_of_means(const ByTowerAndRank& rows);  // those of rank r weigh 1 / (W b_r)
Sample padded(const ByTowerAndRank& rows);         // zeros make all shards equally long, and count
// Of one rank alone; together they weigh `weight`.
Sample own_rows(const ByTowerAndRank& rows, size_t rank, double weight);

}  // namespace weft::verify
