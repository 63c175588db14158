// SPDX-License-Identifier: Apache-2.0
#pragma once
// How far what a rank has after the reducer is from what it should be, tile by tile: what ExpectedRounding says of a
// tensor in memory, in one pass. The variance of each number is computed, where ExpectedRounding samples it.
#include "tools/weft/verdict/verdict.h"

namespace weft::verify {

struct Tile {
  int64_t row, column, rows, columns;
};
// In the order in which StreamedRank expects the tiles of a matrix. Each is one range of the flat tensor.
std::vector<Tile> tiles_of(int64_t rows, int64_t columns);

class StreamedRank {
 public:
  StreamedRank(std::string name, int64_t rows, int64_t columns, double epsilon);

  using Numbers = Eigen::Map<const Eigen::Array<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;
  void add(const Tile& tile, const Numbers& dumped, const Numbers& truth, const Numbers& variances);
  void finish();

  bool finite() const { return finite_; }
  const Comparison& comparison() const { return comparison_; }
  std::optional<Resolution> resolution() const { return resolution_; }  // none, if the truth is zero
  double product() const { return product_; }
  double truth_square() const { return truth_square_; }

 private:
  using Column = Eigen::ArrayXd;
  void add_sums(const Tile& tile, const Numbers& dumped, const Numbers& truth, const Numbers& variances);
  void find_worst(const Tile& tile, const Numbers& dumped, const Numbers& truth);
  void judge_rows(const Column& distances, const Column& expected, const Column& truths);
  void judge_columns();

  int64_t rows_, columns_;
  double epsilon_;
  Comparison comparison_;
  std::optional<Resolution> resolution_;
  bool finite_ = true;
  double of_element_ = 0, of_row_ = 0, of_column_ = 0, row_shown_ = 0, worst_ = -1;  // of_...: squares
  double distance_ = 0, variance_ = 0, square_ = 0, product_ = 0, truth_square_ = 0, along_truth_ = 0,
         truth_fourth_ = 0, variance_along_truth_ = 0;
  Column row_distances_, row_expected_, row_truths_;  // of rows of which a part has been added
  Column column_distances_, column_expected_;         // likewise
};

}  // namespace weft::verify
