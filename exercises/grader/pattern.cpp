// SPDX-License-Identifier: Apache-2.0
#include "exercises/grader/pattern.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace weft::grader {
namespace {

// Whether given = factor * right. Where there is nothing to multiply, any factor will do.
bool is_multiple(const Tensor& right, const Tensor& given, double factor) {
  if (!given.defined() || right.shape() != given.shape()) return false;
  const std::vector<double> wanted = right.values(), got = given.values();
  for (size_t i = 0; i < wanted.size(); ++i)
    if (!equal(wanted[i] == 0 ? 0 : wanted[i] * factor, got[i])) return false;
  return true;
}

// That of the largest element, if it is that of all.
std::optional<double> factor_of(const Tensor& right, const Tensor& given) {
  if (!given.defined() || right.shape() != given.shape()) return {};
  const std::vector<double> wanted = right.values(), got = given.values();
  const auto largest = std::ranges::max_element(wanted, {}, [](double x) { return std::abs(x); });
  if (largest == wanted.end() || *largest == 0) return {};
  const double factor = got[static_cast<size_t>(largest - wanted.begin())] / *largest;
  return is_multiple(right, given, factor) ? std::optional(factor) : std::nullopt;
}

struct Numbers {
  double ranks, all, own;  // numbers of ranks, of all samples and of a rank's own
};
struct Factor {
  const char *signature, *what;
  double (*of)(const Numbers&);
};
// One factor for all ranks before those that differ between them.
constexpr Factor factors[] = {
    {"S1", "All values are zero: nothing comes back.", [](const Numbers&) { return 0.0; }},
    {"", "All values have the wrong sign.", [](const Numbers&) { return -1.0; }},
    {"", "All values are twice the right ones.", [](const Numbers&) { return 2.0; }},
    {"", "All values are half of the right ones.", [](const Numbers&) { return 0.5; }},
    {"S8", "All values are W times the right ones: something is counted once per rank.",
     [](const Numbers& n) { return n.ranks; }},
    {"S9", "All values are 1/W of the right ones: the number of ranks divides once too often.",
     [](const Numbers& n) { return 1 / n.ranks; }},
    {"S33", "All values are the right ones times the number of samples of all ranks.",
     [](const Numbers& n) { return n.all; }},
    {"S33", "All values are the right ones divided by the number of samples of all ranks.",
     [](const Numbers& n) { return 1 / n.all; }},
    {"S33", "All values are the right ones times N / W: W divides in place of the number of samples.",
     [](const Numbers& n) { return n.all / n.ranks; }},
    {"S33", "All values are the right ones times W / N.", [](const Numbers& n) { return n.ranks / n.all; }},
    {"S12", "Each rank's values are N / (W n) times the right ones, n of the N samples being its own.",
     [](const Numbers& n) { return n.all / (n.ranks * n.own); }},
    {"S12", "Each rank's values are N / n times the right ones, n of the N samples being its own.",
     [](const Numbers& n) { return n.all / n.own; }},
    {"S33", "Each rank's values are n / N times the right ones, n of the N samples being its own.",
     [](const Numbers& n) { return n.own / n.all; }},
    {"S33", "Each rank's values are the right ones times the number of its own samples.",
     [](const Numbers& n) { return n.own; }},
    {"S33", "Each rank's values are the right ones divided by the number of its own samples.",
     [](const Numbers& n) { return 1 / n.own; }},
};

bool fits(const Factor& factor, const Compared& compared) {
  for (size_t d = 0; d < compared.divisions.size(); ++d) {
    const Rows& samples = compared.divisions[d];
    for (size_t r = 0; r < samples.size(); ++r) {
      const Numbers counts{static_cast<double>(samples.size()), static_cast<double>(total_rows(samples)),
                           static_cast<double>(samples[r])};
      if (!is_multiple(compared.right[d][r], compared.given[d][r], factor.of(counts))) return false;
    }
  }
  return true;
}

// The factor that all ranks have for all divisions.
std::optional<double> one_factor(const Compared& compared) {
  std::optional<double> factor;
  for (size_t d = 0; d < compared.divisions.size(); ++d)
    for (size_t r = 0; r < compared.divisions[d].size(); ++r) {
      if (!factor) factor = factor_of(compared.right[d][r], compared.given[d][r]);
      if (!is_multiple(compared.right[d][r], compared.given[d][r], factor.value_or(1))) return {};
    }
  return factor;
}

bool differs_by_rounding(const Compared& compared) {
  for (size_t d = 0; d < compared.divisions.size(); ++d)
    for (size_t r = 0; r < compared.divisions[d].size(); ++r)
      if (!equal(compared.right[d][r], compared.given[d][r], 1e-5)) return false;
  return true;
}

std::string number(double x) { return std::isnan(x) ? "nan" : weft::text(x); }

std::string times_text(const std::optional<double>& factor) {
  if (!factor) return "";
  return *factor == 0 ? "; all its values are zero"
                      : "; all its values are " + number(*factor) + " times the right ones";
}

// " at [1, 0]" of element i; "" of a scalar.
std::string index_text(const Shape& shape, size_t i) {
  std::string index;
  auto rest = static_cast<int64_t>(i);
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const int64_t inner = shape.product(axis + 1, shape.rank());
    index += (axis ? ", " : " at [") + std::to_string(rest / inner);
    rest %= inner;
  }
  return index.empty() ? "" : index + "]";
}

}  // namespace

Pattern pattern_of(const Compared& compared) {
  if (differs_by_rounding(compared))
    return {"S28",
            "All values are right but for their rounding: numbers went through f32. Weft's default is f32; "
            "give DType::f64."};
  for (const Factor& factor : factors)
    if (fits(factor, compared)) return {factor.signature, factor.what};
  if (const auto factor = one_factor(compared))
    return {"S33", "All values are " + number(*factor) + " times the right ones."};
  return {};
}

std::string difference(const OfRanks& right, const OfRanks& given) {
  for (size_t r = 0; r < right.size(); ++r) {
    if (equal(right[r], given[r])) continue;
    const std::string rank = "rank " + std::to_string(r) + " has ";
    if (!given[r].defined()) return rank + "an empty tensor, not one of " + text(right[r].shape());
    if (right[r].shape() != given[r].shape())
      return rank + "a tensor of " + text(given[r].shape()) + ", not of " + text(right[r].shape());
    const std::vector<double> wanted = right[r].values(), got = given[r].values();
    size_t i = 0;
    while (equal(wanted[i], got[i])) ++i;
    return rank + number(got[i]) + index_text(right[r].shape(), i) + ", not " + number(wanted[i]) +
           times_text(factor_of(right[r], given[r]));
  }
  return {};
}

}  // namespace weft::grader
