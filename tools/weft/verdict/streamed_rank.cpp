// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/verdict/streamed_rank.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace weft::verify {
namespace {

constexpr int64_t tile_elements = 1 << 14;  // stay in the cache
constexpr double infinite = std::numeric_limits<double>::infinity();

// The largest of so many parts is off by more than is usual: by the less, the more elements each of them has.
double caution(int64_t parts, int64_t elements_of_each) {
  return 1 + std::sqrt(2 * std::log(static_cast<double>(parts)) / static_cast<double>(elements_of_each));
}

template <class Distances, class Expected> double largest_ratio(const Distances& distances, const Expected& expected) {
  return (distances == 0).select(0, distances / expected).maxCoeff();
}

}  // namespace

std::vector<Tile> tiles_of(int64_t rows, int64_t columns) {
  const int64_t width = std::min(columns, tile_elements), height = width == columns ? tile_elements / width : 1;
  std::vector<Tile> tiles;
  for (int64_t column = 0; column < columns; column += width)
    for (int64_t row = 0; row < rows; row += height)
      tiles.push_back({row, column, std::min(height, rows - row), std::min(width, columns - column)});
  return tiles;
}

StreamedRank::StreamedRank(std::string name, int64_t rows, int64_t columns, double epsilon)
    : rows_(rows), columns_(columns), epsilon_(epsilon), comparison_{std::move(name), rows * columns} {
  if (columns > tile_elements) row_distances_ = row_expected_ = row_truths_ = Column::Zero(rows);
}

void StreamedRank::add(const Tile& tile, const Numbers& dumped, const Numbers& truth, const Numbers& variances) {
  if (tile.row == 0) {
    judge_columns();
    column_distances_ = column_expected_ = Column::Zero(tile.columns);
  }
  add_sums(tile, dumped, truth, variances);
}

void StreamedRank::add_sums(const Tile& tile, const Numbers& dumped, const Numbers& truth, const Numbers& variances) {
  const Eigen::Array<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> squares = (dumped - truth).square(),
                                                                              truths = truth.square(),
                                                                              expected = variances.max(
                                                                                  epsilon_ * epsilon_ * truths);
  const double distance = squares.sum();
  finite_ = finite_ && std::isfinite(distance);
  distance_ += distance;
  variance_ += variances.sum();
  square_ += dumped.square().sum();
  product_ += (dumped * truth).sum();
  truth_square_ += truths.sum();
  along_truth_ += ((dumped - truth) * truth).sum();
  truth_fourth_ += truths.square().sum();
  variance_along_truth_ += (variances * truths).sum();
  if (!finite_ || squares.maxCoeff() > worst_) find_worst(tile, dumped, truth);
  of_element_ = std::max(of_element_, largest_ratio(squares, expected));
  if (rows_ > 1) {
    column_distances_ += squares.colwise().sum().transpose();
    column_expected_ += expected.colwise().sum().transpose();
  }
  if (row_distances_.size() == 0)
    return judge_rows(squares.rowwise().sum(), expected.rowwise().sum(), truths.rowwise().sum());
  row_distances_.segment(tile.row, tile.rows) += squares.rowwise().sum();
  row_expected_.segment(tile.row, tile.rows) += expected.rowwise().sum();
  row_truths_.segment(tile.row, tile.rows) += truths.rowwise().sum();
}

// The first number that is not finite is worst.
void StreamedRank::find_worst(const Tile& tile, const Numbers& dumped, const Numbers& truth) {
  for (int64_t i = 0; i < tile.rows && worst_ < infinite; ++i)
    for (int64_t j = 0; j < tile.columns && worst_ < infinite; ++j) {
      const double distance = std::pow(dumped(i, j) - truth(i, j), 2);
      if (std::isfinite(distance) && distance <= worst_) continue;
      worst_ = std::isfinite(distance) ? distance : infinite;
      comparison_.worst_element = (tile.row + i) * columns_ + tile.column + j;
      comparison_.dumped = dumped(i, j);
      comparison_.expected = truth(i, j);
    }
}

void StreamedRank::judge_rows(const Column& distances, const Column& expected, const Column& truths) {
  of_row_ = std::max(of_row_, largest_ratio(distances, expected));
  row_shown_ = std::max(row_shown_, (truths > 0).select(expected / truths, 0).maxCoeff());
}

void StreamedRank::judge_columns() {
  if (column_distances_.size() > 0)
    of_column_ = std::max(of_column_, largest_ratio(column_distances_, column_expected_));
}

void StreamedRank::finish() {
  if (comparison_.elements == 0) return;
  judge_columns();
  if (row_distances_.size() > 0) judge_rows(row_distances_, row_expected_, row_truths_);
  const double whole = std::max(std::sqrt(variance_), epsilon_ * std::sqrt(truth_square_)),
               factor = truth_square_ == 0
                            ? 0
                            : std::max(std::sqrt(variance_along_truth_), epsilon_ * std::sqrt(truth_fourth_)) /
                                  truth_square_;
  const double of_rows = caution(rows_, columns_);
  double error = 0;
  if (!finite_) {
    error = infinite;
  } else if (distance_ > 0) {
    error = std::max({std::sqrt(distance_) / whole, std::sqrt(of_element_) / caution(comparison_.elements, 1),
                      std::sqrt(of_row_) / of_rows, std::sqrt(of_column_) / caution(columns_, rows_)});
    const double common = comparison_.elements > 1 && truth_square_ > 0
                              ? std::max(std::abs(along_truth_ / truth_square_) - epsilon_, 0.0)
                              : 0;
    if (common > 0) error = std::max(error, common / factor);
  }
  const double length = std::sqrt(square_), of_truth = std::sqrt(truth_square_);
  comparison_.error = error;
  comparison_.cosine = length * of_truth == 0 ? (length == of_truth ? 1 : 0) : product_ / (length * of_truth);
  comparison_.ratio = of_truth == 0 ? (length == 0 ? 1 : infinite) : length / of_truth;
  if (truth_square_ > 0) resolution_ = Resolution{epsilon_ + limit * factor, limit * of_rows * std::sqrt(row_shown_)};
}

}  // namespace weft::verify
