// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/explain/formulas.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace weft::verify {
namespace {

using Cells = Eigen::ArrayXXd;  // by rank and micro-batch

struct Quantity {
  std::string name;
  Cells logs;
  size_t length = 1;  // in a formula; of what is seldom meant, 2
};

// What weights are made of. None of them is zero; those that are equal are one.
class Quantities {
 public:
  std::vector<Quantity> all = {};

  Quantities(Eigen::Index ranks, Eigen::Index passes) : ranks_(ranks), passes_(passes) {}

  void add(const std::string& name, const Cells& values, size_t length = 1) {
    if ((values == 1).all() || (values <= 0).any()) return;
    const Cells logs = values.log();
    for (Quantity& each : all) {
      if (!each.logs.isApprox(logs)) continue;
      if (each.name != name) each.name += " (or " + name + ")";
      return;
    }
    all.push_back({name, logs, length});
  }
  void add_number(const std::string& name, double value, size_t length = 1) {
    add(name, Cells::Constant(ranks_, passes_, value), length);
  }

  void add_numbers(const Dump& dump) {
    add_number("ranks", static_cast<double>(ranks_));
    add_number("micro-batches", static_cast<double>(passes_));
    if (dump.mesh)
      for (const Axis& axis : dump.mesh->axes) add_number("size of " + axis.name, axis.size);
    for (const Count& each : dump.counts)
      if (each.values.size() == 1) add_number(each.name, each.values(0, 0));
  }
  void add_count(const Count& count) {
    if (count.values.size() == 1 || count.values.rows() != ranks_) return;
    const Cells values = count.values.array();
    const Eigen::ArrayXd of_ranks = values.rowwise().sum();
    const std::string& name = count.name;
    add_number("all " + name, of_ranks.sum());
    if ((values == values(0, 0)).all() && values.cols() == 1) return add_number(name, values(0, 0));
    add("own " + name, of_ranks.replicate(1, passes_));
    add_number("most " + name + " of a rank", of_ranks.maxCoeff(), seldom);
    add("the next rank's " + name, turned(of_ranks, 1).replicate(1, passes_), seldom);
    add("the last rank's " + name, turned(of_ranks, ranks_ - 1).replicate(1, passes_), seldom);
    add(name + " in reverse order of ranks", of_ranks.reverse().replicate(1, passes_), seldom);
    if (values.cols() != passes_ || passes_ == 1) return;
    add("the micro-batch's " + name, values);
    add("the micro-batch's " + name + " of all ranks", values.colwise().sum().replicate(ranks_, 1));
    add_number("most " + name + " of a micro-batch", values.maxCoeff(), seldom);
  }

 private:
  static constexpr size_t seldom = 2;
  Eigen::ArrayXd turned(const Eigen::ArrayXd& of_ranks, Eigen::Index by) const {
    Eigen::ArrayXd result(ranks_);
    for (Eigen::Index r = 0; r < ranks_; ++r) result(r) = of_ranks((r + by) % ranks_);
    return result;
  }
  Eigen::Index ranks_, passes_;
};

// Tries products and quotients of quantities, from the shortest on.
class Search {
 public:
  Search(const Weights& weights, std::vector<Quantity> quantities)
      : logs_(weights.values.array().log()),
        known_to_(weights.known_to.array() / weights.values.array()),
        quantities_(std::move(quantities)) {
    std::set<double> different;
    chance_ = 1;
    for (Eigen::Index r = 0; r < logs_.rows(); ++r)
      for (Eigen::Index k = 0; k < logs_.cols(); ++k) {
        known_to_(r, k) = std::max(known_to_(r, k), exact);
        if (std::isfinite(known_to_(r, k)) && different.insert(logs_(r, k)).second) chance_ *= 2 * known_to_(r, k);
      }
  }

  std::vector<std::string> found(size_t most_factors) {
    constexpr double unlikely = 0.1;
    left_.assign(most_factors + 1, logs_);
    chosen_.assign(most_factors, 0);
    for (size_t factors = 1; factors <= most_factors && names_.empty(); ++factors) {
      for (size_t below = 0; below <= factors; ++below) {
        above_ = 0;
        extend(0, 0, factors - below, below);
      }
      if (tried_ * chance_ > unlikely) return {};
    }
    return names_;
  }

 private:
  static constexpr double exact = 1e-9;

  bool is_above(size_t quantity) const {
    const auto end = chosen_.begin() + static_cast<std::ptrdiff_t>(above_);
    return std::find(chosen_.begin(), end, quantity) != end;
  }

  // So much is left to be chosen above and below the line. What is above comes first, each not before the last one.
  void extend(size_t depth, size_t next, size_t above, size_t below) {
    const Cells& left = left_[depth];
    if (above + below == 0) {
      ++tried_;
      if ((left.abs() <= known_to_).all()) names_.push_back(formula(depth));
      return;
    }
    for (size_t i = next; i < quantities_.size(); ++i) {
      const auto& [name, logs, length] = quantities_[i];
      if (length > (above > 0 ? above : below) || (above == 0 && is_above(i))) continue;
      chosen_[depth] = i;
      if (above > 0) {
        above_ = depth + 1;
        left_[depth + 1] = left - logs;
        extend(depth + 1, above == length ? 0 : i, above - length, below);
      } else {
        left_[depth + 1] = left + logs;
        extend(depth + 1, i, 0, below - length);
      }
    }
  }

  std::string product(size_t begin, size_t end) const {
    std::string all;
    for (size_t i = begin; i < end; ++i) all += (i == begin ? "" : " x ") + quantities_[chosen_[i]].name;
    return begin == end ? "1" : all;
  }
  // Of the chosen quantities.
  std::string formula(size_t count) const {
    const std::string over = product(0, above_), under = product(above_, count);
    return above_ == count ? over : over + " / " + (above_ + 1 == count ? under : "(" + under + ")");
  }

  Cells logs_, known_to_;
  std::vector<Quantity> quantities_;
  double chance_;  // that a formula gives the weights by chance
  double tried_ = 0;
  size_t above_ = 0;            // so many of the chosen quantities are above the line
  std::vector<size_t> chosen_;  // quantities, and what they leave of the weights
  std::vector<Cells> left_;
  std::vector<std::string> names_;
};

}  // namespace

std::vector<std::string> formulas(const Weights& given, const Dump& dump) {
  const auto of_all = [&](const Eigen::MatrixXd& cells) -> Eigen::MatrixXd {
    return cells.replicate(cells.rows() == 1 ? dump.ranks : 1, cells.cols() == 1 ? dump.micro_batches : 1);
  };
  const Weights weights{of_all(given.values), of_all(given.known_to)};
  const Eigen::ArrayXXd known = weights.known_to.array().isFinite().select(weights.values.array(), 1.0);
  if (!(known > 0).all()) return {};
  Quantities quantities(weights.values.rows(), weights.values.cols());
  quantities.add_numbers(dump);
  constexpr size_t most_numbers = 2, most_factors = 4;
  std::vector<std::string> names = Search(weights, quantities.all).found(most_numbers);
  if (!names.empty()) return names;
  for (const Count& each : dump.counts) quantities.add_count(each);
  if (std::ssize(dump.rows) == weights.values.rows())
    quantities.add_count(
        {"samples", Eigen::Map<const Eigen::VectorX<int64_t>>(dump.rows.data(), std::ssize(dump.rows)).cast<double>()});
  const bool uniform = (known - known(0, 0)).abs().maxCoeff() <= weights.known_to.minCoeff();
  return Search(weights, quantities.all).found(uniform ? most_numbers : most_factors);
}

}  // namespace weft::verify
