// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/verdict/distance.h"

#include <Eigen/Core>
#include <cmath>
#include <limits>

#include "tools/weft/dump/evidence.h"

namespace weft::verify {
namespace {

using Portion = Eigen::Array<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// The largest of so many squares whose mean is 1.
double expected_largest(int64_t count) { return std::max(1.0, 2 * std::log(static_cast<double>(count))); }

// The gradient and the truth in portions that stay in the cache, of whole rows or of a part of one.
template <class T> class Portions {
 public:
  Portions(const T* found, const Expected<T>& expected)
      : found_(found), expected_(expected), columns_(expected.elements / expected.rows) {}

  // act(number of the first element, gradient, truth, square of its rounding)
  template <class Act> void each(Act act) const {
    places([&](int64_t first, int64_t rows, int64_t columns) {
      const auto of = [&](const auto* x) { return part(x + first, rows, columns); };
      const Portion y = of(expected_.truth);
      act(first, Portion(of(found_)), y, rounding(of, y));
    });
  }
  // The square of that of all.
  double rounding() const {
    double all = 0;
    places([&](int64_t first, int64_t rows, int64_t columns) {
      const auto of = [&](const auto* x) { return part(x + first, rows, columns); };
      all += rounding(of, of(expected_.truth)).sum();
    });
    return all;
  }

 private:
  template <class Act> void places(Act act) const {
    constexpr int64_t size = 2048;
    const int64_t rows_at_once = std::max<int64_t>(1, size / columns_);
    for (int64_t row = 0; row < expected_.rows; row += rows_at_once)
      for (int64_t column = 0; column < columns_; column += size)
        act(row * columns_ + column, std::min(rows_at_once, expected_.rows - row), std::min(size, columns_ - column));
  }
  template <class U> auto part(const U* x, int64_t rows, int64_t columns) const {
    using Numbers = Eigen::Array<U, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    return Eigen::Map<const Numbers, 0, Eigen::OuterStride<>>(x, rows, columns, Eigen::OuterStride<>(columns_))
        .template cast<double>();
  }
  // A value is off by half the distance of two neighbours at most.
  template <class Of, class Truth> Portion rounding(const Of& of, const Truth& y) const {
    const double stored = std::pow(expected_.epsilon / 2, 2) / (expected_.terms + 1),
                 moved = 1.0 / (4 * std::max<double>(1, static_cast<double>(expected_.inexact.size())));
    Portion all = stored * y.square();
    for (const T* each : expected_.inexact) all += moved * (of(each) - y).square();
    if (expected_.squares) all += stored * of(expected_.squares);
    return all;
  }

  const T* found_;
  const Expected<T>& expected_;
  const int64_t columns_;
};

// Of a gradient and the truth. Each part of them has its own rounding, and a share of that of all, since few numbers
// tell it badly.
class Sums {
 public:
  Sums(double rounding, int64_t elements, int64_t rows)
      : rounding_(rounding),
        elements_(elements),
        rows_(rows),
        columns_(elements / rows),
        share_(std::max(rounding / static_cast<double>(elements), std::numeric_limits<double>::min())) {}

  // The first of these elements has this number.
  void add(int64_t first, const Portion& x, const Portion& y, const Portion& rounding) {
    const Portion squares = (x - y).square();
    const double sum = squares.sum();
    squares_ += sum;
    if (!std::isfinite(sum) || squares.maxCoeff() > largest_) find_worst(first, squares);
    add_rows(first, squares, rounding);
    of_element_ = std::max(of_element_, (squares * 2 / (rounding + share_)).maxCoeff());
    x_x_ += x.square().sum();
    y_y_ += y.square().sum();
    x_y_ += (x * y).sum();
  }

  Distance distance() const {
    const auto elements = static_cast<double>(elements_);
    const double whole = squares_ / elements * (elements + 1) / (rounding_ + share_);
    const double most = std::max({whole, of_row_ / expected_largest(rows_), of_element_ / expected_largest(elements_)});
    const auto or_one = [](double x) { return x == 0 ? 1 : x; };
    const double truth = std::sqrt(y_y_), length = or_one(truth);
    return {.error = std::isfinite(squares_) ? std::sqrt(most) : std::numeric_limits<double>::infinity(),
            .cosine = x_y_ / or_one(std::sqrt(x_x_) * length),
            .ratio = std::sqrt(x_x_) / length,
            .length = truth,
            .shown = limit * std::sqrt(rounding_) / length,
            .worst_element = worst_};
  }

 private:
  void find_worst(int64_t first, const Portion& squares) {
    Eigen::Index row = 0, column = 0;
    const double largest = squares.maxCoeff<Eigen::PropagateNaN>(&row, &column);
    if (std::isnan(largest_) || largest <= largest_) return;
    largest_ = largest;
    worst_ = first + row * columns_ + column;
  }
  void add_rows(int64_t first, const Portion& squares, const Portion& rounding) {
    if (first % columns_ == 0) this_row_ = rounding_of_row_ = 0;
    Eigen::ArrayXd of_rows = squares.rowwise().sum(), rounding_of_rows = rounding.rowwise().sum();
    this_row_ = of_rows(0) += this_row_;
    rounding_of_row_ = rounding_of_rows(0) += rounding_of_row_;
    if ((first + squares.cols()) % columns_ != 0) return;
    const auto columns = static_cast<double>(columns_);
    of_row_ = std::max(of_row_, (of_rows / columns * (columns + 1) / (rounding_of_rows + share_)).maxCoeff());
  }

  double rounding_;
  int64_t elements_, rows_, columns_, worst_ = 0;
  double share_, squares_ = 0, of_row_ = 0, of_element_ = 0, x_x_ = 0, y_y_ = 0, x_y_ = 0, largest_ = -1;
  double this_row_ = 0, rounding_of_row_ = 0;  // of a row of which a part has been added
};

template <class T> Distance measured(const T* found, const Expected<T>& expected) {
  if (expected.elements == 0) return {};
  const Portions<T> portions(found, expected);
  Sums sums(portions.rounding(), expected.elements, expected.rows);
  portions.each([&](auto&&... portion) { sums.add(portion...); });
  Distance result = sums.distance();
  result.found = static_cast<double>(found[result.worst_element]);
  result.truth = static_cast<double>(expected.truth[result.worst_element]);
  return result;
}

}  // namespace

template <class T> Distance distance(const T* found, const Expected<T>& expected) { return measured(found, expected); }

template Distance distance(const float*, const Expected<float>&);
template Distance distance(const double*, const Expected<double>&);
template Distance distance(const Eigen::bfloat16*, const Expected<Eigen::bfloat16>&);
template Distance distance(const Eigen::half*, const Expected<Eigen::half>&);

}  // namespace weft::verify
