// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/verdict/unexplained.h"

#include <algorithm>
#include <cmath>

namespace weft::verify {
namespace {

using ByRank = std::vector<Matrix>;

// Where sums may have been taken in a lower precision, and how far off each element then usually is, squared, as a
// multiple of that precision: the sum of the squares of all sums on the way.
struct Chain {
  const char* where;
  double terms;
  ByRank squares;
};

// What the reducer should make of the local gradients; the same of their absolute values, which no sum of terms
// exceeds, in whatever order it is taken.
class ReducerSums {
 public:
  ByRank truth, bound;
  std::vector<Chain> chains;
  double copies = 1;  // that equal ranks have of each element

  ReducerSums(const ParameterEvidence& parameter, const Dump& dump)
      : parameter_(parameter), reduction_(mesh_of(dump), layout_of(parameter, dump), parameter.shapes_of_reduced()) {
    const Mesh mesh = mesh_of(dump);
    const Layout layout = layout_of(parameter, dump);
    double ranks = 1, unit = 1;  // in one sum, and what it is multiplied by
    for (size_t axis = 0; axis < mesh.axes.size(); ++axis) {
      if (layout.reduced[axis].kind == Placement::Kind::replicate) copies *= mesh.axes[axis].size;
      if (layout.local[axis].pending()) ranks *= mesh.axes[axis].size;
      if (layout.local[axis].kind == Placement::Kind::mean) unit /= mesh.axes[axis].size;
    }
    Chain over_ranks{"over ranks", ranks, zeros(parameter.reduced)},
        over_passes{"over micro-batches", static_cast<double>(parameter.local[0].size()), {}};
    ByRank sums, sizes, squares;
    for (const auto& of_rank : parameter.local)
      for (ByRank* each : {&sums, &sizes, &squares}) each->push_back(Matrix::Zero(1, of_rank[0].size()));
    for (size_t r = 0; r < sums.size(); ++r) {
      for (const Matrix& m : parameter.local[r]) {
        sums[r] += m;
        sizes[r] += m.cwiseAbs();
        squares[r] += unit * sums[r].cwiseAbs2();
      }
      const ByRank so_far = reduced(sums);
      for (size_t q = 0; q < so_far.size(); ++q) over_ranks.squares[q] += ranks / mesh.ranks() * so_far[q].cwiseAbs2();
    }
    truth = reduced(sums);
    bound = reduced(sizes);
    over_passes.squares = reduced(squares);
    for (Chain* each : {&over_ranks, &over_passes})
      if (each->terms > 1) chains.push_back(std::move(*each));
  }

 private:
  static ByRank zeros(const ByRank& like) {
    ByRank all;
    for (const Matrix& m : like) all.push_back(Matrix::Zero(1, m.size()));
    return all;
  }
  ByRank reduced(const ByRank& of_ranks) const { return parameter_.through(reduction_, of_ranks); }
  const ParameterEvidence& parameter_;
  const Reduction reduction_;
};

bool differ(const Matrix& a, const Matrix& b, double epsilon) {
  for (Eigen::Index i = 0; i < a.size(); ++i)
    if (std::isfinite(a(i)) != std::isfinite(b(i))) return true;
  return a.allFinite() && (a - b).norm() > limit * epsilon * std::max(a.norm(), b.norm());
}

// Uninitialised memory is not always absurd, but what is absurd is no sum of gradients.
bool is_absurd(const Matrix& dumped, const Matrix& bound) {
  constexpr double far_off = 1000;
  return dumped.size() > 0 && (!dumped.allFinite() || dumped.cwiseAbs().maxCoeff() > far_off * bound.maxCoeff());
}

void explain_by_repetition(Verdict& verdict, const ParameterEvidence& parameter, const ReducerSums& sums) {
  bool absurd = false, repeated = !parameter.again.empty(), different = false;
  for (size_t r = 0; r < parameter.reduced.size(); ++r) {
    absurd |= is_absurd(parameter.reduced[r], sums.bound[r]);
    different |= repeated && differ(parameter.reduced[r], parameter.again[r], parameter.precision.epsilon);
  }
  if (absurd && different) {
    verdict.best = Explained{&signature("S27"), "", 0};
    verdict.runner_up.reset();
  } else if (absurd && !repeated) {
    verdict.remarks.push_back("no sum of gradients is that large: S27, if again/" + parameter.name +
                              ", from the same step run again, has other numbers");
  } else if (different) {
    verdict.remarks.push_back("repeating the step gave other numbers: something is read before it is complete");
  }
}

struct LowPrecision {
  const char* name;
  double rounding;  // of one operation, at most
};

// The differences of all elements from the truth, and what is known of them.
struct Difference {
  struct Element {
    double usual, square;
  };
  std::vector<Element> elements;
  double copies;
  double largest = 0;  // as a multiple of the bound
  double sum = 0, square = 0, usual_square = 0, along_truth = 0, truth_square = 0;

  Difference(const ByRank& dumped, const ReducerSums& sums, const Chain& chain) : copies(sums.copies) {
    for (size_t r = 0; r < dumped.size(); ++r)
      for (Eigen::Index i = 0; i < dumped[r].size(); ++i)
        add(dumped[r](i), sums.truth[r](i), sums.bound[r](i), chain.squares[r](i));
    std::ranges::sort(elements, {}, &Element::usual);
  }
  double distinct_elements() const { return static_cast<double>(elements.size()) / copies; }
  // Roundings are independent of each other and of the truth. Five standard deviations are far.
  bool is_random() const {
    const double far = 5 * std::sqrt(square * copies);
    return std::abs(sum) < far &&
           std::abs(along_truth) < far * std::sqrt(truth_square / static_cast<double>(elements.size()));
  }
  // Where sums are larger so are their roundings: nearer to in proportion than to not at all.
  bool grows_with_sums() const {
    const size_t half = elements.size() / 2;
    double usual[2] = {}, difference[2] = {};
    for (size_t i = 0; i < 2 * half; ++i) {
      usual[i / half] += elements[i].usual;
      difference[i / half] += elements[i].square;
    }
    return difference[1] * std::sqrt(usual[0]) > difference[0] * std::sqrt(usual[1]);
  }

 private:
  void add(double dumped, double truth, double bound, double usual) {
    const double difference = dumped - truth;
    if (difference != 0) largest = std::max(largest, std::abs(difference) / bound);
    elements.push_back({usual, difference * difference});
    sum += difference;
    square += difference * difference;
    usual_square += usual;
    along_truth += difference * truth;
    truth_square += truth * truth;
  }
};

// Whether the differences are such as sums in this precision leave: none is larger than all roundings together can be,
// as a whole they are of the usual size, and they have nothing to do with the truth.
std::optional<double> explained_by(const LowPrecision& low, const Chain& chain, const Difference& difference) {
  constexpr double fewest_elements = 64;
  constexpr double least = 0.1, most = 0.8;  // one rounding is 0.4 of the largest, as a root mean square
  const double roundings = 2 * chain.terms;  // of each term, and of each sum
  const double largest = difference.largest / (roundings * low.rounding),
               usual = std::sqrt(difference.square / difference.usual_square) / low.rounding;
  if (difference.distinct_elements() < fewest_elements || largest > 1 || usual < least || usual > most ||
      !difference.is_random() || !difference.grows_with_sums())
    return std::nullopt;
  return largest;
}

void explain_by_precision(Verdict& verdict, const ParameterEvidence& parameter, const ReducerSums& sums) {
  for (const Chain& chain : sums.chains) {
    const Difference difference(parameter.reduced, sums, chain);
    for (const LowPrecision& low : {LowPrecision{"f16", 0x1p-11}, LowPrecision{"bf16", 0x1p-8}}) {
      const auto error = explained_by(low, chain, difference);
      if (!error || parameter.precision.epsilon >= low.rounding) continue;
      const std::string where = verdict.best ? "" : std::string(", ") + chain.where;  // or it could be either
      verdict.best = Explained{&signature("S28"), std::string("in ") + low.name + where, *error};
      verdict.runner_up.reset();
    }
  }
  if (verdict.best)
    verdict.remarks.push_back("named by the size and direction of the differences alone: no formula predicts them");
}

}  // namespace

void explain_without_formula(Verdict& verdict, const ParameterEvidence& parameter, const Dump& dump) {
  for (const auto& of_rank : parameter.local)
    for (const Matrix& m : of_rank)
      if (!m.allFinite()) return;
  const ReducerSums sums(parameter, dump);
  explain_by_repetition(verdict, parameter, sums);
  const bool finite = std::ranges::all_of(parameter.reduced, [](const Matrix& m) { return m.allFinite(); });
  if (!verdict.best && finite) explain_by_precision(verdict, parameter, sums);
}

}  // namespace weft::verify
